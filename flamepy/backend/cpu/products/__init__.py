"""Matrix products and linear layers of the CPU, from the register tile to whole matrices."""
