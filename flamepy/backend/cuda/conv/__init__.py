"""Convolution and pooling of images on a GPU."""
