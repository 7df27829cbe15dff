"""What flamepy is, without what makes it fast: tensors, the tape, the walk back, gradients as values. Read in this order: words,
philox (what formulas are written in), formula (how a device takes one), device, plain, kernels (a device in NumPy),
spec, changes (the bus), tensor, modes, tape, door, op, inputs, call (what an op and a call of it are), pointwise, custom, hooks, gradients,
backward, ops, methods (what every Tensor can do), rng, creation, parameter, clip, optimizers; evening has all of it by name."""
