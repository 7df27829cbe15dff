"""Scaled dot-product attention on the CPU."""
