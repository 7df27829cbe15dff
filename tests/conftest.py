"""What every test starts from: the signals a terminal gives, whoever started the test run; and the device a test runs on.

A run in the background (`pytest &`, nohup, some CI systems) ignores SIGINT and SIGHUP, and so would the processes that tests
start and interrupt. Read next: devices.py, test_autograd.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from devices import cuda_device, default_device, has_gpu

signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Compiling for a GPU that is emulated takes a fifth of a second a kernel: without a GPU these files alone run there.
EMULATED = ("test_replay", "test_replay_failures", "test_replay_kinds", "test_clip_replay", "test_ops", "test_clip", "test_gradient_map")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what would run on an emulated GPU for too long."""
    if not has_gpu():
        cuda = [i for i in items if getattr(i, "callspec", None) and i.callspec.params.get("device") == "cuda"]
        out = {i for i in cuda if i.path.stem not in EMULATED}
        config.hook.pytest_deselected(items=list(out))
        items[:] = [i for i in items if i not in out]


@pytest.fixture(params=["cpu", "plain", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the device that the test runs on: flamepy's default one meanwhile. "cuda" is emulated."""
    with cuda_device() if request.param == "cuda" else nullcontext(), default_device(request.param):
        yield request.param


@pytest.fixture
def plain(request: pytest.FixtureRequest) -> Iterator[None]:
    """On the device without kernels, which compiles nothing; but for a test that asks for both."""
    with nullcontext() if "device" in request.fixturenames else default_device("plain"):
        yield
