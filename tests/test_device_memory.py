"""A device by itself, on every device: copies that convert, memory and parts of it, downloads, and a recorder in the stream's place."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest
from launches import B1, F4, F8, I4, I8, ON

from flamepy.backend.base import Stream
from flamepy.backend.recorder import divert
from flamepy.backend.run import Step

pytestmark = ON


def raised_by(x, c):
    return x + c


def test_copy_converts(on):
    where = on.device
    values = np.array([0.0, -1.75, 3.5, 257.0])
    half, brain = np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)
    for source in (F4, F8, I4, I8, B1, half, brain):
        for target in (F4, F8, I4, I8, B1, half, brain):
            x, out = where.upload(values.astype(source)), where.empty(4, target)
            where.stream.copy(out, x)
            assert np.array_equal(where.download(out), values.astype(source).astype(target)), (source, target)
    out = where.empty(2, I8)
    where.stream.copy(out, where.upload(np.array([np.nan, 1e300])))  # no warning


def test_memory_and_slots(on):
    where = on.device
    gc.collect()
    before = where.memory()["current"]
    root = where.upload(np.arange(64, dtype=F4))
    part = where.slot(root, 64, 3, I4)
    assert where.memory()["current"] == before + 256 and where.memory()["peak"] >= before + 256
    where.write(part, [1, 2, 3])
    assert where.download(root)[16:19].view(I4).tolist() == [1, 2, 3] and part.root is root and part.start == 16
    root.wrote("test")
    assert part.version == 1 and where.stream.number(part, 1) == 2
    del root
    gc.collect()
    assert where.download(part).tolist() == [1, 2, 3]
    del part
    gc.collect()
    assert where.memory()["current"] == before


def test_downloads_are_read_only_and_uploads_copies(on):
    x = np.arange(6.0).reshape(2, 3)[:, ::-1]
    buffer = on.device.upload(x)
    view = on.device.download(buffer)
    x[...] = 0
    assert view.tolist() == [2, 1, 0, 5, 4, 3]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    shared = np.from_dlpack(on.device.dlpack(buffer, (2, 3)))
    assert shared.shape == (2, 3) and np.shares_memory(shared, view)


def test_a_recorder_sees_each_launch(on):
    class Recorder(Stream):
        def run(self, kernel, outs, ins, consts):
            seen.append((kernel, outs, ins, consts))

    seen, where = [], on.device
    y, x = where.upload(np.zeros(2, F4)), where.upload(np.ones(2, F4))
    with divert(where, Recorder()):
        where.launch("map", raised_by, [y], [x], (np.float32(2),), F4)
    assert not where.download(y).any()
    where.stream.program([Step(*seen[0])])()
    assert where.download(y).tolist() == [3, 3]


def test_two_formulas_of_one_name_are_two_kernels(on):
    x, formulas = np.array([3.0]), (lambda x: x * 2.0, lambda x: x * 5.0)
    assert [on("map", [(1, F8)], [x], (), f)[0].item() for f in formulas] == [6, 15]
