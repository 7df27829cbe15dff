"""What all backends share: formulas, the words they are written in, and how they are bound to a loop. Read words.py, then bind.py."""
