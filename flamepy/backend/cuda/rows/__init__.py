"""Row bodies on blocks of threads."""
