"""Every kernel in plain Python and NumPy: slow, short, made to be read and stepped through. Read device.py, words.py, kernels.py."""
