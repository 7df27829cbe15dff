"""`flamepy doctor --gpu`: every kernel on the GPU beside the reference, figures, a short training; one file for a report."""
