"""The README's test command needs nothing but what it installs: every file is collected without PyTorch, JAX, scikit-learn and CUDA.

Read next: torch_tools.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "jax", "sklearn", "numba_cuda", "cuda", "nvidia"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import pytest
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tests"]))
"""


def test_every_file_is_collected_with_nothing_optional_installed():
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
