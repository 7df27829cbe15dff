"""What is published: an sdist from this folder, a wheel from the sdist, an empty environment where that wheel is installed.

Nothing is downloaded: the dependencies are those of the environment that runs the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import flamepy

ROOT = Path(__file__).parent.parent
VERSION = flamepy.__version__


def run(*command: object, cwd: Path) -> str:
    """What a command prints; it must succeed, and see no flamepy but the one that is installed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or "hatchling" in command}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from what the sdist holds."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    sdist = folder / f"flamepy-{VERSION}.tar.gz"
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=folder / f"flamepy-{VERSION}")
    return sdist, folder / f"flamepy-{VERSION}-py3-none-any.whl"


def test_what_is_in_the_files(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "docs/training.md", "pyproject.toml"} <= inside
    assert {"flamepy/py.typed", "bench/command.py", "tests/test_package.py"} <= inside
    with zipfile.ZipFile(built[1]) as archive:
        inside = set(archive.namelist())
        about = Parser().parsestr(archive.read(f"flamepy-{VERSION}.dist-info/METADATA").decode())
        assert "flamepy developers" in archive.read(f"flamepy-{VERSION}.dist-info/licenses/LICENSE").decode()
    assert {"flamepy/py.typed", "flamepy/command/cli.py", "flamepy/train/loop.py", "flamepy/bench/command.py"} <= inside
    assert {name.split("/")[0] for name in inside} == {"flamepy", f"flamepy-{VERSION}.dist-info"}
    assert not [name for name in inside if "test" in Path(name).name or name.endswith(".pyc")]
    assert (about["License-Expression"], about["License-File"], about["Version"]) == ("MIT", "LICENSE", VERSION)
    python = {str(path.relative_to(ROOT)) for end in ("py", "pyi") for path in (ROOT / "flamepy").rglob(f"*.{end}")}
    assert {name for name in inside if name.endswith((".py", ".pyi")) and "/bench/" not in name} == python


PROGRAM = """
import flamepy, flamepy.bench.command
x = flamepy.tensor([1.0, 2.0], requires_grad=True)
print(flamepy.__file__, (x * x).sum().backward()[x].tolist())
"""


def test_the_wheel_works_in_an_empty_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    python, scripts = tmp_path / "env" / "bin" / "python", tmp_path / "env" / "bin"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built[1], cwd=tmp_path)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(paths)))  # behind the environment's own packages
    assert run(python, "-c", PROGRAM, cwd=tmp_path) == f"{site}/flamepy/__init__.py [2.0, 4.0]\n"
    said = run(scripts / "flamepy", "version", cwd=tmp_path)
    assert said.startswith(f"flamepy {VERSION} (") and said.endswith(f") in {site}/flamepy\n")
    assert "Examples:" in run(scripts / "flamepy", "bench", "--help", cwd=tmp_path)
