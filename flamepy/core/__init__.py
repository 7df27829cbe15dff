"""What flamepy is, without what makes it fast: tensors, the tape, the walk back, gradients as values. Read in this order: spec, tensor."""
