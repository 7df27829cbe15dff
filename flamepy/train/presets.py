"""Ready-made settings for `--preset NAME`: only what differs from the defaults in config.py.

Times are for two cores of a recent laptop.
"""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "GptConfig": {
        # A minute at most, to see everything work once: words, indentation, no sense yet.
        "tiny": {"layers": 2, "heads": 2, "width": 64, "context": 32, "steps": 500},
        # The defaults: 0.8 million parameters, one or two minutes.
        "default": {},
        # 10.8 million parameters, about an hour: text that looks like Python at a glance.
        "large": {"layers": 6, "heads": 6, "width": 384, "context": 256, "batch": 4, "steps": 8000, "dropout": 0.1},
    },
    "DigitsConfig": {
        "default": {},
        # MNIST's 60,000 images of 28 x 28 pixels, with --data FOLDER.
        "mnist": {"batch": 128, "steps": 3000, "lr": 2e-3, "shift": 2},
    },
}
