"""The CPU backend: loops compiled by Numba, run on threads of its own. device.py is the device; kernels are in folders, one a family."""
