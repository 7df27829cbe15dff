"""What other libraries write through DLPack: never a wrong gradient in silence, and no copy where nobody here would notice.

Oracles: derivatives by hand; who shares memory is asked of the memory.
"""

from __future__ import annotations

import numpy as np
import pytest
from error_text import raises

import flamepy as fp


@pytest.fixture(params=["numpy", "torch"])
def take(request):
    return pytest.importorskip(request.param).from_dlpack


def write(alias, value):
    """Overwrite what another library got; NumPy may refuse."""
    try:
        alias[:] = value
    except ValueError as refused:
        assert "read-only" in str(refused)


def leaf():
    return fp.Parameter([2.0, 3.0])


def test_what_a_tape_has_saved_cannot_be_overwritten_from_outside(take):
    x, w = fp.tensor([5.0, 7.0]), leaf()
    y = (x * w).sum()  # saves x and w
    h = w * w
    z = (h * h).sum()  # saves h
    for t in (x, w, w.detach(), h, h.detach(), h.reshape(2, 1).detach().reshape(2)):
        write(take(t), 0.0)
    assert (x.tolist(), w.tolist(), h.tolist()) == ([5, 7], [2, 3], [4, 9])
    assert y.backward()[w].tolist() == [5, 7] and z.backward()[w].tolist() == [4 * 8, 4 * 27]
    w.requires_grad = False
    write(take(w), 0.0)
    assert w.tolist() == [2, 3]  # a frozen parameter belongs to its optimizer, too
    block = fp.checkpoint(lambda v: (x * v).sum(), v := leaf())  # reads x again in backward
    write(take(x), 0.0)
    assert block.backward()[v].tolist() == [5, 7]


def test_what_was_lent_before_is_watched(take):
    x, w = fp.tensor([5.0, 7.0]), leaf()
    alias = take(x)
    alias[0] = 6.0
    assert x.tolist() == [6, 7]  # the memory itself
    assert (x * w).sum().backward()[w].tolist() == [6, 7]
    y = (x * w).sum()
    alias[1] = 8.0
    with raises(fp.VersionError, "a saved value was overwritten", "another library", "__dlpack__() lent the memory at"):
        y.backward()
    assert (x * w).sum().backward()[w].tolist() == [6, 8]
    y = (x * w).sum()
    alias[1] = 8.0  # the same number: nothing is wrong
    again = take(x)  # held by the tape: a copy
    write(again, 1.0)
    assert y.backward()[w].tolist() == [6, 8]


def test_nobodys_memory_is_shared_and_kept_alive(take):
    x = fp.tensor([1.0, 2.0]) + 1.0
    where = x.numpy().ctypes.data
    alias = take(x)
    assert (alias.data_ptr() if hasattr(alias, "data_ptr") else alias.ctypes.data) == where
    del x
    noise = [fp.tensor([9.0, 9.0]) for _ in range(5)]
    assert alias.tolist() == [2, 3] and len(noise) == 5
    grads = (leaf() * 2.0).sum().backward()
    gradient = next(iter(grads.items()))[1]
    take(gradient)[0] = 7.0  # editing it edits the map
    assert next(iter(grads.items()))[1].tolist() == [7, 2]


def test_a_copy_says_so():
    w = leaf()
    assert not np.from_dlpack(w).flags.writeable and np.from_dlpack(w).tolist() == [2, 3]
    with pytest.raises(BufferError, match=r"dlpack: a tape, a Parameter or another tensor holds the memory: .*detach\(\)\.clone\(\)"):
        np.from_dlpack(w, copy=False)
    assert np.from_dlpack(w.detach().clone(), copy=False).flags.writeable
    mine = np.from_dlpack(fp.tensor([1.0]), copy=True)
    mine[0] = 2.0
    assert w.__dlpack__() is not None  # a library that knows nothing of read-only memory
