"""Loops of the CPU, a file a kind: maps, copies, folds, rows, spans; and the vocabulary as compiled functions."""
