"""What is done to gradients between backward() and the step: norms, clipping, other edits, loss scaling; and how they are checked."""
