"""Kernels of a GPU, a file a kind: maps, moves, folds, spans, random numbers, rows by ids; and the vocabulary as device functions."""
