"""What every test starts from: the signals a terminal gives, whoever started the test run.

A run in the background (`pytest &`, nohup, some CI systems) ignores SIGINT and SIGHUP, and so would the processes that tests
start and interrupt. Read next: test_autograd.py.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
