"""Every kernel in plain Python and NumPy, to be read and stepped through: core/plain.py, core/kernels.py, then what is more here."""
