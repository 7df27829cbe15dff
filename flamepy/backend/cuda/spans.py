"""Norms of gradients, clipping and the updates of optimizers."""
