"""Row bodies: a block of threads for each row; totals over rows; the loss of a batch."""
