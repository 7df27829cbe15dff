"""Op: a formula or a function, its derivative, a name. Read base.py, then pointwise.py and custom.py."""
