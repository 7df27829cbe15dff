"""save() and load(): every dtype, nested states, files of other libraries, and files and places that cannot be used.

Oracles: the safetensors package, PyTorch where it is installed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from devices import default_device
from error_text import raises

import flamepy as fp
from flamepy import disk, nn
from flamepy.saving import tensor_file

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.uint8, np.bool_]
ARRAYS = {np.dtype(d).name: np.arange(-3, 3).reshape(3, 2).astype(d) for d in DTYPES}


@pytest.fixture(autouse=True)
def plain():
    """Nothing here depends on the device, and nothing has to be compiled on this one."""
    with default_device("plain"):
        yield


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.safetensors"


def same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert (got[name].dtype, got[name].shape, got[name].tobytes()) == (array.dtype, array.shape, array.tobytes()), name


def test_every_dtype_comes_back_and_other_libraries_read_it(file):
    state = {**ARRAYS, "0-d": np.array(2.5), "empty": np.zeros((0, 3), "f4"), "turned": np.arange(6.0).reshape(2, 3).T}
    fp.save({**state, "swapped": np.arange(3, dtype=">i4")}, file)
    got = fp.load(file)
    assert list(got) == [*state, "swapped"] and got.pop("swapped").tolist() == [0, 1, 2]
    same(got, state)
    got["float32"][0] = 7  # its own memory
    assert fp.load(file)["float32"][0, 0] == -3 and os.listdir(file.parent) == [file.name]
    for name, entry in safetensors.deserialize(file.read_bytes()):
        assert name == "swapped" or bytes(entry["data"]) == state[name].tobytes()


def test_a_nested_state_comes_back_as_it_was(file):
    plain = {"lr": 0.1, "n": 3, "big": 10**30, "none": None, "yes": True, "text": 'ü"\n', "rows": [1, (2.5, [], {})], "zero": -0.0}
    state = {
        "plain": plain,
        7: {"a.b": np.ones(2, "f4"), "items": [np.zeros(1), (np.ones(1),)]},
        "nan": math.nan,
        "number": np.float32(0.5),
    }
    fp.save(state, file)
    got = fp.load(file)
    assert got["plain"] == plain and repr(got["plain"]["zero"]) == "-0.0" and type(got["plain"]["yes"]) is bool
    assert list(got) == list(state) and math.isnan(got["nan"]) and got["number"] == 0.5 and type(got["plain"]["rows"][1]) is tuple
    assert got[7]["a.b"].tolist() == [1, 1] and got[7]["items"][0].tolist() == [0] and got[7]["items"][1][0].tolist() == [1]
    with safetensors.safe_open(file, "np") as opened:
        assert {*opened.keys()} == {"7.a.b", "7.items.0", "7.items.1.0"}  # the stated rule


def test_a_bfloat16_model_and_its_optimizer_come_back(file):
    def made(seed):
        fp.manual_seed(seed)
        model = nn.Linear(3, 2, dtype=fp.bfloat16)
        return model, fp.SGD(model, lr=0.5, momentum=0.9)

    def train(model, optimizer):
        optimizer.step(model(fp.ones((2, 3), dtype=fp.bfloat16)).sum().backward())

    model, optimizer = made(0)
    train(model, optimizer)
    fp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, str(file))
    other, again = made(1)
    state = fp.load(str(file))
    other.load_state_dict(state["model"])
    again.load_state_dict(state["optimizer"])
    for pair in ((model, optimizer), (other, again)):
        train(*pair)
    same(other.state_dict(), model.state_dict())
    fp.save({"w": model.weight, "t": fp.ones(2)}, file)  # tensors as they are
    same(fp.load(file), {"w": model.weight.numpy(), "t": np.ones(2, "f4")})


def test_files_of_other_libraries(file):
    whole = {name: a for name, a in ARRAYS.items() if name != "bfloat16"}
    safetensors.numpy.save_file(whole, file, {"format": "np"})
    same(fp.load(file), whole)
    file.write_bytes(b"".join(tensor_file.pieces(ARRAYS, {})))
    same(fp.load(file), ARRAYS)


def test_a_state_is_never_twice_in_memory(file):
    state = {str(i): np.full((1 << 18, 2), float(i)).T for i in range(8)}  # 4 MB each, not contiguous
    tracemalloc.start()
    try:
        fp.save(state, file)
        saving = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        got = fp.load(file)
        loading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert saving < 9e6 and loading < 36e6  # of 33.6e6: two arrays' copies; the whole once
    assert got["7"].shape == (2, 1 << 18)


# ---- PyTorch -----------------------------------------------------------------------------------------------------------------------
def test_pytorchs_states_are_taken_and_given(file):
    torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
    from safetensors.torch import load_file, save_file

    theirs = {name: torch.arange(-3, 3).reshape(3, 2).to(getattr(torch, name)) for name in ARRAYS}
    save_file(theirs, file)
    same(fp.load(file), ARRAYS)
    leaf = torch.ones(2, 3, dtype=torch.bfloat16).T.requires_grad_()
    fp.save({"a": theirs, "leaf": leaf}, file)
    got = load_file(file)
    assert {*got} == {*[f"a.{name}" for name in theirs], "leaf"} and torch.equal(got["leaf"], leaf.detach())
    assert all(torch.equal(got[f"a.{name}"], t) and got[f"a.{name}"].dtype == t.dtype for name, t in theirs.items())
    for bad in (torch.eye(2).to_sparse(), torch.ones(1, dtype=torch.complex64), torch.ones(1, device="meta")):
        with raises(fp.DTypeError):
            fp.save({"w": bad}, file)
    assert torch.equal(load_file(file)["leaf"], leaf.detach()) and os.listdir(file.parent) == [file.name]
    torch.save({}, file)
    with raises(fp.StateError, "load: damaged, or no safetensors file", file, "safetensors.torch.save_file"):
        fp.load(file)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_state_of_pytorchs_by_name(dtype):
    """An MLP has the same names in both; what is built of other layers here goes through from_torch_names()."""
    torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2, bias=False)).to(kind)
    ours = nn.Sequential(nn.Linear(3, 4, dtype=dtype), nn.ReLU(), nn.LayerNorm(4, dtype=dtype), nn.Linear(4, 2, bias=False, dtype=dtype))
    ours.load_state_dict(theirs.state_dict(keep_vars=True))
    assert {n: p.tolist() for n, p in ours.named_parameters()} == {n: p.tolist() for n, p in theirs.named_parameters()}
    assert nn.from_torch_names(theirs.state_dict()).keys() == ours.state_dict().keys()


def test_an_encoder_layer_of_pytorchs_is_a_transformer_block():
    torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", norm_first=True, batch_first=True)
    theirs = torch.nn.ModuleDict({"b": layer, "a": torch.nn.MultiheadAttention(8, 2, batch_first=True), "linear1": torch.nn.Linear(8, 8)})
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)

    class Ours(nn.Module):
        def __init__(self):
            self.b, self.a, self.linear1 = nn.TransformerBlock(8, 2, causal=False), nn.MultiHeadAttention(8, 2), nn.Linear(8, 8)

    ours = Ours()
    with raises(
        fp.StateError, "names differ: missing ['b.attn", "unknown ['b.self_attn.in_proj_weight'", "Pass nn.from_torch_names(state)"
    ):
        ours.load_state_dict(theirs.state_dict())
    ours.load_state_dict(nn.from_torch_names(theirs.state_dict()))
    x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype("f4")
    t = torch.tensor(x)
    np.testing.assert_allclose(ours.b(fp.tensor(x)).numpy(), theirs["b"](t).detach(), atol=2e-5)
    np.testing.assert_allclose(ours.a(fp.tensor(x)).numpy(), theirs["a"](t, t, t)[0].detach(), atol=2e-5)
    np.testing.assert_allclose(ours.linear1(fp.tensor(x)).numpy(), theirs["linear1"](t).detach(), atol=2e-5)


# ---- what cannot be saved, and where ---------------------------------------------------------------------------------------------------
LOOP: dict = {}
LOOP["again"] = LOOP
REFUSED = [
    (nn.Linear(1, 1), fp.StateError, "not a dict: Linear. Pass its state_dict()"),
    ([np.ones(1)], fp.StateError, "not a dict: list"),
    ({"m": nn.Linear(1, 1)}, fp.StateError, "'m' is a Linear. Pass its state_dict()"),
    ({"a": {"s": {1}}}, fp.StateError, "cannot be saved: 'a.s' is a set"),
    ({"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, fp.StateError, "two arrays have one name: 'a.b'"),
    ({"__metadata__": np.ones(1)}, fp.StateError, "name of the metadata"),
    ({(1,): 2}, fp.StateError, "a key cannot be saved: (1,)"),
    ({"\ud800": np.ones(1)}, fp.StateError, "a key is no text"),
    ({"c": np.ones(1, complex)}, fp.DTypeError, "'c' is complex128"),
    ({"o": np.array([None])}, fp.DTypeError, "'o' is object"),
    (LOOP, fp.StateError, "more than 100 levels"),
]


@pytest.mark.parametrize("state,error,words", REFUSED)
def test_what_cannot_be_saved_changes_nothing(file, state, error, words):
    fp.save({"n": 1}, file)
    with raises(error, "save: ", words):
        fp.save(state, file)
    assert fp.load(file) == {"n": 1} and os.listdir(file.parent) == [file.name]


def test_places_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    for path, words in (
        (tmp_path, "there is a folder in this place"), ("/dev/null", "no regular file"), (3, "not a path: 3"), ("a\0b", "not a path"),
        (tmp_path / "none" / "x", "Make the folder first"), (tmp_path / "file" / "x", "Not a directory"),
        (tmp_path / ("x" * 300), "too long"),
    ):  # fmt: skip
        with raises(fp.StateError, "save: ", words):
            fp.save({}, path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"] and Path("/dev/null").is_char_device()
    for path, words in (
        (tmp_path, "not a file"), ("/dev/null", "not a file"), (3, "not a path"), (None, "not a path"), ("a\0b", "not a path"),
        (tmp_path / "none", "No such file"), (tmp_path / "file", "damaged, or no safetensors file"),
    ):  # fmt: skip
        with raises(fp.StateError, "load: ", words):
            fp.load(path)


def test_a_write_that_fails_leaves_what_was_there(file, monkeypatch):
    fp.save({"w": np.ones(3)}, file)
    os.chmod(file, 0o600)
    real = os.write
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        left = iter(range(2))

        def write(handle, data, left=left, error=error):
            if next(left, None) is None:
                raise error
            return real(handle, data[:40])

        monkeypatch.setattr(os, "write", write)
        with pytest.raises((fp.StateError, KeyboardInterrupt), match=r"No space left|^$"):
            fp.save({"w": np.zeros(3)}, file)
        monkeypatch.setattr(os, "write", real)
        assert fp.load(file)["w"].tolist() == [1, 1, 1] and os.listdir(file.parent) == [file.name]
    link = file.with_name("link")
    link.symlink_to(file.name)
    fp.save({"w": np.zeros(3)}, link)
    assert link.is_symlink() and fp.load(file)["w"].tolist() == [0, 0, 0] and file.stat().st_mode & 0o777 == 0o600


def test_each_bit_counts(file):
    fp.save({"w": np.arange(3.0), "n": 12}, file)
    whole = file.read_bytes()
    cuts = [whole[:i] for i in range(0, len(whole), 7)]
    for content in cuts + [whole[:i] + bytes([whole[i] ^ (1 << i % 8)]) + whole[i + 1 :] for i in range(len(whole))]:
        file.write_bytes(content)
        with pytest.raises(fp.StateError, match="load: damaged, or no safetensors file"):
            fp.load(file)
    file.write_bytes(whole + b"x")
    with raises(fp.StateError, "25 bytes of data, expected 24"):
        fp.load(file)


@pytest.mark.parametrize("offsets", [([0, 8], [0, 8]), ([0, 8], [12, 20]), ([4, 12], [12, 20])])
def test_arrays_that_overlap_or_leave_holes_are_refused(file, offsets):
    entries = {str(i): {"dtype": "F32", "shape": [2], "data_offsets": o} for i, o in enumerate(offsets)}
    text = json.dumps(entries).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(offsets[1][1]))
    with raises(fp.StateError, "load: damaged", "of the data, expected"):
        fp.load(file)


def test_threads_that_save_to_one_place_leave_one_whole_file(file):
    states = [{"w": np.full(200_000, float(i))} for i in range(4)]
    crowd = [threading.Thread(target=lambda s=s: [fp.save(s, file) for _ in range(3)]) for s in states]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    assert np.ptp(fp.load(file)["w"]) == 0 and not list(file.parent.glob(disk.TEMPORARY + "*"))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock that tells who is alive")
def test_what_a_killed_process_was_saving_goes_with_the_next_save(file, monkeypatch):
    fp.save({"w": np.ones(3)}, file)
    monkeypatch.setattr(disk, "FRESH", 0.0)
    code = "import os, sys, flamepy; os.replace = lambda *_: os.kill(os.getpid(), 9); flamepy.save({'step': 1}, sys.argv[1])"
    assert subprocess.run([sys.executable, "-c", code, str(file)], check=False).returncode == -signal.SIGKILL
    (left,) = file.parent.glob(disk.TEMPORARY + "*")
    assert fp.load(file)["w"].tolist() == [1, 1, 1]
    with left.open("rb") as owner:
        assert disk.lock(owner.fileno())
        fp.save({"w": np.ones(3)}, file)
        assert left.exists()  # somebody is writing it
    fp.save({"w": np.ones(3)}, file.with_name("another file"))
    assert left.exists()
    fp.save({"w": np.ones(3)}, file)
    assert not list(file.parent.glob(disk.TEMPORARY + "*"))
