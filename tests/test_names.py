"""The public names, FLAME's module names, and the tree of errors.

A name is part of the interface: what the contract lists is importable from flamepy itself, importing a module never replaces a
function, and every error is also the builtin a caller would think of. Oracle: the lists below.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import flamepy as fp
from flamepy import errors

NAMES = """
    tensor zeros ones full arange eye randn rand uniform zeros_like ones_like full_like randn_like rand_like uniform_like manual_seed
    float32 float64 float16 bfloat16 int32 int64 bool_ Tensor Parameter ParameterDict GradientMap AutogradEngine tape no_grad
    enable_grad is_grad_enabled clip_grad_norm clip_grad_norm_ clip_grad_value clip_grad_value_ grad_norm SGD Adam AdamW AdamConfig
    SGDConfig checkpoint gradcheck schedules nn FlameWarning from_dlpack linspace isnan isinf isfinite
    regularizer GradientTracker Pipeline
    SGDConfig checkpoint gradcheck schedules AccumulationConfig GradientAccumulator EMA SWA Lookahead find_lr nn FlameWarning
    from_dlpack linspace isnan isinf isfinite
    save load
"""
ATTRIBUTES = {
    "Tensor": """shape ndim size dtype device id name requires_grad numpy item tolist to clone detach requires_grad_ backward mul_scalar
        add_scalar div_scalar square to_scalar view numel grad has_grad take_grad randn __array__ __dlpack__ __dlpack_device__""",
    "Parameter": "id randn zeros ones uniform tensor grad set_grad zero_grad update apply_update set_data requires_grad",
    "ParameterDict": """insert get __getitem__ __contains__ __len__ __iter__ parameters named_parameters zero_grad set_grads freeze unfreeze
        state_dict load_state_dict pack""",
    "GradientMap": """get __getitem__ insert accumulate get_or_create take contains __contains__ __len__ items __iter__ clear set_grad
        scale_grad scale_ merge to_dict named_items""",
    "Module": """named_parameters params state_dict load_state_dict train eval register_buffer named_buffers register_forward_hook
        register_forward_pre_hook apply to freeze unfreeze num_parameters summary""",
    "AutogradEngine": "record backward reset tape tape_len",
    "SGD": "step zero_grad lr state_dict load_state_dict get_state restore_state",
    "AdamW": "step zero_grad lr state_dict load_state_dict get_state restore_state",
}
FLAME_MODULES = ["gradient", "parameter", "gradient_clip", "gradient_checkpointing", "autograd", "optimizers", "nn.functional"]
OBJECTS = {
    "Tensor": fp.ones(1), "Parameter": fp.Parameter.ones(1), "ParameterDict": fp.ParameterDict(), "GradientMap": fp.GradientMap(),
    "Module": fp.nn.ReLU(),
    "AutogradEngine": fp.AutogradEngine(device=None), "SGD": fp.SGD([fp.Parameter.ones(1)]), "AdamW": fp.AdamW([fp.Parameter.ones(1)]),
}  # fmt: skip
STUB = Path(fp.__file__).with_suffix(".pyi")
TREE = {
    "ShapeError": ValueError, "DTypeError": TypeError, "IndexOutOfRange": IndexError, "DeviceError": RuntimeError,
    "EmulationError": errors.DeviceError,
    "GradientError": RuntimeError, "VersionError": errors.GradientError, "NonFiniteError": ArithmeticError, "StateError": ValueError,
    "AccumulationError": ValueError, "ShapeMismatch": errors.AccumulationError, "NoGradients": errors.AccumulationError,
    "AccumulatorFull": errors.AccumulationError,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES.split())
def test_public_names(name):
    assert getattr(fp, name) is not None


@pytest.mark.parametrize("cls", ATTRIBUTES)
def test_attributes(cls):
    assert not [name for name in ATTRIBUTES[cls].split() if not hasattr(OBJECTS[cls], name)]


def test_dir_shows_what_is_public_and_nothing_else():
    modules = {*FLAME_MODULES, "cuda", "nn", "ops", "regularizer", "schedules", "train", "transforms", "words", "linalg", "metrics"}
    shown = {name for name in dir(fp) if not name.startswith("__")}
    assert {name for name in shown if isinstance(getattr(fp, name), types.ModuleType)} <= modules
    assert shown - modules == set(re.findall(r" as (\w+)$", STUB.read_text(), re.M)) - modules  # the names an editor is told
    for cls in ("Tensor", "Parameter"):
        names = dir(OBJECTS[cls])
        assert set(ATTRIBUTES[cls].split()) - {"__cuda_array_interface__"} <= set(names)
        private = "buffer entry slot spec unit broken hooks origin copied_into as_cotangent ones_cotangent zero_gradient _grad _write"
        assert not set(private.split()) & set(names)
        assert not [name for name in names if name.startswith("_") and not name.endswith("__")]
    tensor = fp.ones(1)
    tensor.mine = 1
    assert "mine" in dir(tensor) and set(vars(np.ndarray)) & set(dir(tensor)) >= {"shape", "sum", "reshape", "tolist"}
    assert importlib.import_module("flamepy.optimizers").AdamW is fp.AdamW


def test_the_words_are_there_once_flamepy_is_imported():
    code = "import flamepy, math; assert flamepy.words.exp(1.0) == math.exp(1.0); from flamepy import words"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_flamepy_leaves_out_what_few_programs_need():
    """Until it is asked for by name; a star import asks for all."""
    code = """
import sys, flamepy
late = ["accumulation", "linalg", "metrics", "regularizer", "saving", "train", "transforms", "schedules.search"]
print([name for name in late if "flamepy." + name in sys.modules], [m for m in ("hashlib", "difflib", "numpy.random") if m in sys.modules])
assert flamepy.save.__module__ == "flamepy.saving" and vars(flamepy)["save"] is flamepy.save
from flamepy import *
print(load.__name__, find_lr.__name__, metrics.__name__, TrainState.__name__, Pipeline.__name__, linalg.__name__)
print([name for name in dir(flamepy) if name[0] != "_" and name not in globals()])
"""
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines() == ["[] []", "load find_lr flamepy.metrics TrainState Pipeline flamepy.linalg", "[]"]


def test_importing_a_module_replaces_no_function():
    before = {name: getattr(fp, name) for name in dir(fp)}
    for module in pkgutil.walk_packages(fp.__path__, "flamepy."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    assert not [name for name, value in before.items() if getattr(fp, name) is not value]
    for name in FLAME_MODULES:
        importlib.import_module("flamepy." + name)


@pytest.mark.parametrize("name", TREE)
def test_each_error_is_also_the_builtin(name):
    error = getattr(errors, name)
    assert getattr(fp, name) is error and issubclass(error, errors.FlameError) and issubclass(error, TREE[name])
    assert issubclass(errors.FlameError, Exception) and issubclass(fp.FlameWarning, UserWarning)


def test_errors_of_accumulation_carry_their_values():
    for error, words in (
        (fp.ShapeMismatch("w", (2,), (3,)), ("'w'", "(2,)", "(3,)")), (fp.NoGradients("w"), ("'w'",)), (fp.AccumulatorFull(4), ("4",)),
    ):  # fmt: skip
        assert str(error).startswith("accumulate: ") and all(word in str(error) for word in words)
