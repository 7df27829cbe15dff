"""What backends that compile share: how a formula is bound to a loop, and the rule of clipping."""
