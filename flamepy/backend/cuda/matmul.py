"""Matrix products and linear layers."""
