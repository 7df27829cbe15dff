"""Random numbers from counters (formula/philox.py)."""
