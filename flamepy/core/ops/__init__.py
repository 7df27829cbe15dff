"""The basic ops, each in one block: formula or forward function, derivative, name. Read pointwise, then reduce, shape, matrices, rows."""
