"""`raises`: pytest.raises that also checks how the text of the error is built.

Every error of flamepy reads `<op>: <what is wrong>: <values>. <what to do>`: whoever sees it knows which call failed, on what,
and what to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FORM = re.compile(r"\w[\w.]*: [^:]+: .+\. [A-Z].+\.?", re.DOTALL)


@contextmanager
def raises(kind: Any, *words: Any) -> Iterator[Any]:
    """The block raises `kind`; the text has the form above and contains every one of `words`."""
    with pytest.raises(kind) as caught:
        yield caught
    text = caught.value.args[0]  # str() of a KeyError is quoted
    assert FORM.fullmatch(text), text
    for word in words:
        assert str(word) in text, text
