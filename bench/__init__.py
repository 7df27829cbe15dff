"""Benchmarks: `python -m bench step` and `python -m bench dispatch`. Each checks results before it prints a time.

Read next: harness.py.
"""
