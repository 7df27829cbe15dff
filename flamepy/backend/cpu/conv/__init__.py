"""Convolution and pooling of images on the CPU."""
