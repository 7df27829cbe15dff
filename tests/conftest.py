"""What every test starts from: the signals a terminal gives, whoever started the test run; and the device a test runs on.

A run in the background (`pytest &`, nohup, some CI systems) ignores SIGINT and SIGHUP, and so would the processes that tests
start and interrupt.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from devices import cuda_device, default_device, has_gpu
from hypothesis import HealthCheck, settings
from torch_tools import ORACLES, left_out, mark

import flamepy as fp
from flamepy.backend.cpu.runtime.compiler import patience

# Kernels that are compiled while a test looks at warnings are none of its; nor are those of the processes it starts.
patience.said = True
os.environ["PYTHONWARNINGS"] = ",".join([*filter(None, [os.environ.get("PYTHONWARNINGS")]), "ignore:kernels are compiled"])
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Processes are started by the hundred: that each compiles all of flamepy's files takes half a second.
CODE = tempfile.mkdtemp(prefix="flamepy-tests-") if sys.dont_write_bytecode else ""
if CODE:
    sys.dont_write_bytecode, sys.pycache_prefix = False, CODE
    os.environ.update(PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=CODE)
# How fast examples are drawn says nothing here: a machine that is compiling kernels is busy.
settings.register_profile("busy", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# A compiler makes millions of objects, few of them in circles: to look for these as often as usual takes a tenth of the tests' time.
gc.set_threshold(10_000, 20, 50)


ROOT = Path(__file__).resolve().parent.parent
KEPT = {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "__pycache__", "runs", "build", "dist"}  # .gitignore has these


def in_root() -> set[str]:
    """The names in the checkout's root, without caches."""
    return {p.name for p in ROOT.iterdir() if p.name not in KEPT and not p.name.startswith(".coverage")}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test writes into its tmp_path: a run that leaves a new file in the checkout fails. With pytest-xdist the main process looks."""
    left = in_root() - session.config.stash[BEFORE]
    if left and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nERROR: the tests left in {ROOT}: {', '.join(sorted(left))}. Write into tmp_path.")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEFORE] = in_root()
    if CODE:
        config.add_cleanup(lambda: shutil.rmtree(CODE, ignore_errors=True))


BEFORE = pytest.StashKey[set[str]]()


# What an emulated GPU would take too long for: a kernel is compiled in a seventh of a second, an element is computed in a microsecond.
LEFT_OUT = {
    "test_16_bit_floats": "500 kernels: every op, in both 16-bit floats; test_half.py and test_halves.py have some of them",
    "test_attention_and_its_gradients": "tiles of 16-bit floats, two seconds a kernel: test_cuda_attention.py has each once",
    "test_bias_gradients": "sums of 131,072 rows, which are 4.7e-7 of the terms off on CUDA, not 3e-7",
    "test_checkpoint_frees_memory_and_changes_nothing": "tensors of megabytes",
    "test_convolution_and_pooling_of_large_images": "292,800 numbers; test_sums_along_any_axis has long sums, test_ops.py convolution",
    "test_broadcasting_is_that_of_numpy": "a kernel for each way to broadcast that is drawn; test_ops.py has some of them",
    "test_train_10_save_load_in_a_new_process_train_10_equals_train_20": "a process that compiles all again; test_p14 resumes in one",
}

# The marker `quick`: something of every subject, in less than a minute on two cores once the kernels are compiled.
QUICK = {
    *("test_layers", "test_house", "test_words"),  # the code's structure and words
    *("test_tensor", "test_creation", "test_plain"),  # tensors and ops
    *("test_autograd", "test_walk", "test_gradient_map", "test_clip", "test_transforms"),  # gradients
    *("test_optimizers", "test_schedules"),
    *("test_nn", "test_modules"),
    *("test_replay", "test_replay_kinds"),  # capture
    *("test_saving", "test_tensor_file", "test_pickle"),
    "test_cli",
    *("test_emulator", "test_devices"),
}

# The marker `thorough`: what takes long and is rarely broken by what a newcomer changes. `.ci/run` runs it after the rest; a test of it
# that is asked for by its file runs at once.
THOROUGH_FILES = {
    "test_arm", "test_bfloat_products", "test_products", "test_precision", "test_kernels_custom",  # machine code and bits of products
    "test_cuda_machine_code", "test_cuda_products", "test_cuda_traffic", "test_cuda_maps", "test_cuda_reduce",  # kernels for GPUs
    "test_extremes", "test_compute_training", "test_fused_rows", "test_mixed_floats", "test_integer_powers",  # many numbers, many types
    "test_environment", "test_kernel_cache", "test_output", "test_platforms",  # settings, caches, terminals, systems: a process each
    "test_cuda_warp_groups", "test_cuda_warp_groups_dx", "test_train_damage", "test_train_stops",  # runs that are damaged or broken off
}  # fmt: skip
THOROUGH = {
    *("test_16_bit_floats", "test_train_10_save_load_in_a_new_process_train_10_equals_train_20"),  # hundreds of kernels
    *("test_float32_formulas_hold_no_float64_and_vectorise", "test_attention_in_16_bits", "test_recording_takes_time_in_proportion"),
    *("test_same_bits_run_to_run_for_one_and_two_threads_serial_and_parallel", "test_sums_keep_their_digits_without_avx"),
    *("test_two_processes_fill_an_empty_cache_at_once", "test_kernels_compiled_in_different_processes_are_not_mixed_up"),
    *("test_two_processes_share_a_cold_cache", "test_kernels_are_kept_on_disk_for_the_next_process", "test_every_form_is_its_composition"),
    *("test_runs_that_accumulate_go_on_bit_for_bit_and_keep_their_number", "test_stopped_and_resumed_in_new_processes_equals_one_go"),
    *("test_it_asks_for_nothing_that_windows_lacks", "test_a_path_in_utf_8_works_where_the_locale_knows_only_ascii"),
    *("test_the_interpreter_exits_quietly", "test_every_piece_of_ptx_is_convergent", "test_precision_of_float32"),
    *("test_logits_of_a_chunk_alone_are_ever_in_memory", "test_a_compute_dtype_keeps_statistics_in_float32"),
    *("test_every_file_is_collected_with_nothing_optional_installed", "test_the_wheel_works_in_an_empty_environment"),
    *("test_loops_without_columns_of_all_types", "test_16_bits_are_added_up_in_more", "test_the_same_bits_for_any_number_of_threads"),
    *("test_an_op_gives_the_float32_results_rounded_once", "test_integers_stay_exact", "test_it_is_plain_data_keyed_by_name"),
}
# On an emulated GPU. Of the forward passes those in float32 of KINDS stay.
THOROUGH_EMULATED = {
    *("test_gradient", "test_gradient_of_strided_inputs", "test_second_gradient", "test_gradient_is_that_of_the_plain_device"),
    *("test_gradient_of_a_broadcast_input_on_a_gpu", "test_reduction_over_any_axes"),
    *("test_a_recorded_backward_gives_the_same_gradient", "test_gradient_of_one_tensor_used_twice"),
    "test_permute_and_reshape_lose_nothing",
    "test_what_is_made_of_several_ops_is_rounded_once_too",
    *("test_cross_entropy_and_its_gradient", "test_a_16_bit_model_holds_half_of_what_float32_does"),
    *("test_basic_indexing_is_that_of_numpy", "test_training_packed_equals_unpacked_bit_for_bit", "test_packed_equals_unpacked"),
    *("test_checkpoint_retain_graph_and_capture_give_the_same_bits", "test_a_residual_norm_does_not_see_its_sum_rounded"),
    *("test_operands_are_rounded_once_and_sums_are_float32", "test_arrays_and_lists_are_rounded_as_tensors_are"),
    *("test_a_block_keeps_its_activations_in_16_bits_and_its_stream_in_32", "test_a_captured_step_gives_eagers_bits_or_raises"),
}
# On the CPU, of ops that are not of KINDS: the plain device has shown the rules, test_forward and test_gradient the kernels.
THOROUGH_COMPILED = {
    *("test_second_gradient", "test_a_recorded_backward_gives_the_same_gradient", "test_gradient_of_strided_inputs"),
}

# On the CPU, in another dtype than float32: the plain device has all of them.
THOROUGH_DTYPES = {"test_training_packed_equals_unpacked_bit_for_bit", "test_packed_equals_unpacked"}

# What is theirs is in ops and in kinds of kernels, which others test there: test_ops, test_nn, test_autograd, test_replay and the files
# about CUDA stay.
THOROUGH_EMULATED_FILES = {
    "test_activations", "test_attention_conv", "test_augment", "test_autocast", "test_averages", "test_clip", "test_compute_dtype",
    "test_find_lr", "test_fused_layers", "test_gradcheck", "test_gradient_map", "test_gradient_transforms", "test_half", "test_halves",
    "test_loss_scaling", "test_more_optimizers", "test_newer_optimizers", "test_op_properties", "test_optimizer_state", "test_parameters",
    "test_private", "test_replay_equal", "test_replay_kinds", "test_row_losses", "test_transforms",
}  # fmt: skip


# Files about what came after the first wave of ops: README's command runs what they ask of the plain device, where nothing is compiled.
LATER_FILES = {
    "test_array_ops", "test_augment", "test_autocast", "test_channel_norms", "test_integers", "test_linalg", "test_more_activations",
    "test_newer_optimizers", "test_nn_losses", "test_nn_spatial", "test_pointwise_edges", "test_random_ops", "test_recurrent",
    "test_shapes", "test_transformer",
}  # fmt: skip


def is_later(item: pytest.Item, params: dict[str, Any]) -> bool:
    """Whether it asks an op that is not of the first wave for more than what the plain device shows: formulas, rules and shapes are the
    same on every device."""
    if params.get("device", "plain") == "plain" and item.path.stem != "test_ops":
        return False
    first = getattr(item.module, "FIRST", None)
    if first is None:
        return item.path.stem in LATER_FILES
    return params.get("name", "add") not in first and params.get("device") != "plain"


def is_thorough(item: pytest.Item) -> bool:
    name, values = getattr(item, "originalname", ""), getattr(item, "callspec", None)
    params = values.params if values is not None else {}
    if is_later(item, params):
        return True
    if params.get("device") == "cuda" and not has_gpu():
        forward = name == "test_forward" and (params["name"] not in item.module.KINDS or params["dtype"] == "float64")
        if forward or name in THOROUGH_EMULATED or item.path.stem in THOROUGH_EMULATED_FILES:
            return True
    if params.get("device") == "cpu" and name in THOROUGH_COMPILED and params.get("name") not in item.module.KINDS:
        return True
    if params.get("device") == "cpu" and name in THOROUGH_DTYPES and str(params.get("dtype", "float32")) != "float32":
        return True
    return item.path.stem in THOROUGH_FILES or name in THOROUGH


def leaves_out_thorough(config: pytest.Config) -> bool:
    return "thorough" not in config.option.markexpr and not any([".py" in argument for argument in config.args])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test would run are not imported: to collect them takes longer than to run those of `-m quick`."""
    name = collection_path.stem
    quick = config.option.markexpr == "quick" and name.startswith("test_") and name not in QUICK
    return True if quick or (name in THOROUGH_FILES and leaves_out_thorough(config)) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs PyTorch where there is none; what takes long, unless it is asked for; what an emulated GPU takes too long for; a
    second way of the CPU's there; and what the engine adds where it is left out."""
    mark(items)
    for item in items:
        if item.path.stem in QUICK:
            item.add_marker("quick")
        if is_thorough(item):
            item.add_marker("thorough")
    out = set(left_out(items, config.option.markexpr))
    if leaves_out_thorough(config):
        out |= {i for i in items if i.get_closest_marker("thorough")}
    if os.environ.get("FLAMEPY_ENGINE") == "core":
        out |= {i for i in items if i.get_closest_marker("engine")}
    if not has_gpu():
        cuda = [i for i in items if getattr(i, "callspec", None) and i.callspec.params.get("device") == "cuda"]
        out |= {i for i in cuda if getattr(i, "originalname", "") in LEFT_OUT or i.callspec.params.get("way", "widened") != "widened"}
    config.hook.pytest_deselected(items=list(out))
    items[:] = [i for i in items if i not in out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that is skipped for want of an oracle and has no marker would run nowhere: it fails."""
    report = yield
    wants = report.skipped and any(f"could not import '{oracle}'" in str(report.longrepr) for oracle in ORACLES)
    if wants and item.get_closest_marker("torch") is None:
        report.outcome, report.longrepr = "failed", "this test needs PyTorch or JAX: give it the marker `torch`"
    return report


@pytest.fixture(scope="module", autouse=True)
def what_is_there_stays() -> None:
    """The garbage collector need not go over the million objects of what other files compiled again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def lines_are_whole() -> Iterator[None]:
    """Tests look for sentences in what the command prints; test_lines.py has them fitted. A test's own monkeypatch ends before others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "1000")
        yield


@pytest.fixture(params=["cpu", "plain", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the device that the test runs on: flamepy's default one meanwhile. "cuda" is emulated where there is no GPU."""
    with cuda_device() if request.param == "cuda" else nullcontext(), default_device(request.param):
        yield request.param
        if request.param == "cuda":
            told(fp.device("cuda"))


def told(gpu: Any) -> None:
    """What it found out and nobody has read yet is this test's matter, not the next one's."""
    try:
        gpu.synchronize()
    finally:
        gpu.late.waiting.clear()


@pytest.fixture
def plain(request: pytest.FixtureRequest) -> Iterator[None]:
    """On the device without kernels, which compiles nothing; but for a test that asks for both."""
    with nullcontext() if "device" in request.fixturenames else default_device("plain"):
        yield
