"""The CUDA backend: kernels compiled to PTX, run on an NVIDIA GPU or, without one, by the emulator."""
