"""Attention, forward and backward."""
