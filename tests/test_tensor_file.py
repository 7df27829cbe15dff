"""Tensors in a safetensors file: readable by the safetensors package, written and read without a second copy in memory.

Oracles: the safetensors package reads what we write and writes what we read; the system refuses memory beyond a limit.
"""

import json
import re
import subprocess
import sys
from hashlib import sha256

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from flamepy.saving import tensor_file
from flamepy.train import checkpoint

SAFETENSORS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "bool": "BOOL"}


def arrays():
    """Every dtype of flamepy, in an order and sizes that would put wide elements at odd places; 0-d, empty, large."""
    random = np.random.default_rng(0)
    found = {}
    for name in reversed(SAFETENSORS):
        found[f"{name} ü"] = (9 * random.standard_normal((3, 1, 5))).astype(getattr(ml_dtypes, name, name))
    return found | {"scalar": np.array(2.5, np.float16), "empty": np.zeros((0, 4), np.float32), "big": np.arange(700_000.0)}


def content_of(found, metadata):
    return b"".join(tensor_file.pieces(found, metadata))


def same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert (got[name].dtype, got[name].shape, got[name].tobytes()) == (array.dtype, array.shape, array.tobytes()), name


def test_the_safetensors_package_reads_it(tmp_path):
    found = arrays()
    (tmp_path / "x").write_bytes(content_of(found, {"format": "x"}))
    with safetensors.safe_open(tmp_path / "x", "np") as file:  # it also checks that there are no holes
        assert file.metadata() == {"format": "x"} and set(file.keys()) == set(found)
    for name, entry in safetensors.deserialize((tmp_path / "x").read_bytes()):
        array = found[name]
        assert (entry["dtype"], tuple(entry["shape"])) == (SAFETENSORS[array.dtype.name], array.shape)
        assert bytes(entry["data"]) == array.tobytes()
    whole = {name: array for name, array in found.items() if array.dtype != ml_dtypes.bfloat16}  # its NumPy side has no bfloat16
    (tmp_path / "y").write_bytes(content_of(whole, {}))
    same(safetensors.numpy.load_file(tmp_path / "y"), whole)


def test_we_read_it_and_what_the_package_writes(tmp_path):
    for content in (content_of(arrays(), {}), safetensors.numpy.save(arrays())):
        (tmp_path / "x").write_bytes(content)
        got = tensor_file.read(tmp_path / "x", sha256(content).hexdigest())
        same(got, arrays())
        assert not any(array.flags.writeable for array in got.values())


def test_transposed_and_sliced_arrays(tmp_path):
    found = {"turned": np.arange(6.0).reshape(2, 3).T, "sliced": np.arange(20, dtype=np.float32)[::3]}
    (tmp_path / "x").write_bytes(content_of(found, {}))
    same(safetensors.numpy.load_file(tmp_path / "x"), found)


def test_elements_stand_at_multiples_of_their_size():
    content = content_of(arrays(), {"odd": "x"})
    begin = 8 + int.from_bytes(content[:8], "little")
    assert begin % 8 == 0
    for name, entry in json.loads(content[8:begin]).items():
        assert name == "__metadata__" or entry["data_offsets"][0] % arrays()[name].itemsize == 0


def test_no_piece_is_large():
    assert max(len(piece) for piece in tensor_file.pieces(arrays(), {})) <= 1 << 20


def test_an_unknown_dtype_is_refused_and_nothing_stays(tmp_path):
    with pytest.raises(TypeError, match="save: dtype not supported: 'c' is complex128"):
        checkpoint.save(tmp_path, {"a": np.ones(2), "c": np.ones(2, complex)}, {"step": 1}, 2)
    assert not list(tmp_path.iterdir())


BROKEN = {
    "empty": b"",
    "too short": b"1234567",
    "a header longer than the file": (10**15).to_bytes(8, "little") + b"{}",
    "no JSON": (4).to_bytes(8, "little") + b'{"a"',
    "no UTF-8": (4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc",
    "not an object": (2).to_bytes(8, "little") + b"[]",
    "brackets without end": (10**5).to_bytes(8, "little") + b"[" * 10**5,
}
ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
WRONG = [
    {"dtype": "F33"}, {"dtype": []}, {"shape": [3]}, {"shape": [-1, -2]}, {"shape": 2}, {"shape": ["2"]}, {"shape": [2.0]},
    {"data_offsets": [8, 16]}, {"data_offsets": [0]}, {"data_offsets": [-8, 0]}, {"data_offsets": None},
]  # fmt: skip
for i, change in enumerate(WRONG):
    text = json.dumps({"a": {**ENTRY, **change}}).encode()
    BROKEN[f"entry {i}"] = len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_damaged_file_with_the_right_hash_is_one_line(tmp_path, kind):
    checkpoint.save(tmp_path, {"a": np.ones(2)}, {"step": 1}, 2)
    folder = tmp_path / "step-00000001"
    (folder / "tensors.safetensors").write_bytes(BROKEN[kind])
    facts = json.loads((folder / "state.json").read_text())
    facts["tensors"]["sha256"] = sha256(BROKEN[kind]).hexdigest()
    (folder / "state.json").write_text(json.dumps(facts))
    with pytest.raises(checkpoint.InputError, match=r"the checkpoint is damaged: .*tensors\.safetensors: ") as caught:
        checkpoint.load(tmp_path)
    assert "\n" not in str(caught.value)


# ---- memory ------------------------------------------------------------------------------------------------------------------
LIMITED = """
import re, resource, sys, numpy as np
from pathlib import Path
from flamepy.train import checkpoint

def allow(more):
    now = int(re.search(r"VmSize:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))

folder, verb, size, more = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
state = {f"w{i}": np.full(size // 32, float(i)) for i in range(4)} if verb == "save" else {}
allow(int(more * size))
if verb == "save":
    checkpoint.save(folder, state, {"step": 1}, 2)
else:
    tensors = checkpoint.load(folder).tensors
    print(*[float(tensors[name].max()) for name in sorted(tensors)])
"""
SIZE = 64 << 20


def limited(folder, verb, more):
    command = [sys.executable, "-c", LIMITED, str(folder), verb, str(SIZE), str(more)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_saving_and_loading_take_no_second_copy(tmp_path):
    """Saving N bytes takes next to nothing beside them; loading maps the file, once."""
    done = limited(tmp_path, "save", 0.2)
    assert (done.returncode, done.stderr) == (0, "")
    done = limited(tmp_path, "load", 1.2)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "0.0 1.0 2.0 3.0\n")
    done = limited(tmp_path, "load", 0.5)
    assert done.returncode == 1 and re.fullmatch(r"MemoryError: no room to map .*", done.stderr.splitlines()[-1])
