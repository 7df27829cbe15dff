"""Moving elements: strided copies, rows by index, ids."""
