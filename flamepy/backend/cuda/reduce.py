"""Folds: sums, maxima and their places along an axis."""
