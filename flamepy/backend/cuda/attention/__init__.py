"""Scaled dot-product attention on a GPU."""
