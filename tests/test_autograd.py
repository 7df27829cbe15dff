"""The tape: what backward returns, what it refuses, what it frees. Oracles: derivatives worked by hand, NumPy."""

from __future__ import annotations

import gc
import json
import re
import threading

import numpy as np
import pytest

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")


def leaf(*values: float) -> fp.Tensor:
    return fp.tensor(np.array(values), requires_grad=True)


def test_cube_first_and_second_derivative():
    x = leaf(2.0)
    (g,) = [(x**3).sum().backward(create_graph=True)[x]]
    assert g.item() == 12.0  # 3 x^2
    assert g.sum().backward()[x].item() == 12.0  # 6 x


def test_rosenbrock_hessian():
    p = leaf(1.2, 0.7)
    a, b = 1.2, 0.7
    value = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2
    g = value.backward(create_graph=True)[p]
    rows = [g[i].backward(retain_graph=True)[p].numpy() for i in range(2)]
    np.testing.assert_allclose(rows, [[1200 * a * a - 400 * b + 2, -400 * a], [-400 * a, 200]], rtol=1e-12)


def test_a_tensor_used_twice_accumulates():
    a = leaf(5.0)
    y = 3 * a
    assert (y + y).sum().backward()[a].item() == 6.0


def test_no_two_gradients_share_memory():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    grads = (a + b).sum().backward()
    grads.scale_grad(a, 10.0)
    assert grads[a].tolist() == [10.0, 10.0] and grads[b].tolist() == [1.0, 1.0]


def test_the_cotangent_given_is_not_edited():
    x, v = leaf(1.0, 2.0), fp.tensor(np.array([1.0, 1.0]))
    (x + 0).backward(gradient=v).scale_(7.0)
    assert v.tolist() == [1.0, 1.0]


def test_a_leaf_without_a_path_has_no_entry_and_frozen_costs_nothing():
    x, other, frozen = leaf(1.0), leaf(1.0), fp.Parameter(np.ones(1))
    frozen.requires_grad = False
    y = (x * frozen).sum()
    grads = y.backward()
    assert x in grads and other not in grads and frozen not in grads and grads.get(frozen) is None


def test_frozen_inputs_are_not_saved_for():
    x, w = leaf(1.0), fp.tensor(np.ones(1))
    entry = fp.tape(x * w)[0]
    assert list(entry.saved) == ["b"]  # dx needs w; nobody asks for dw


def test_only_named_values_are_saved():
    x = leaf(1.0)
    assert [list(e.saved) for e in fp.tape((x.exp() + 1).tanh())] == [["y"], [], ["y"]]


def test_second_backward_names_the_first():
    x = leaf(1.0)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(fp.GradientError, match=r"retain_graph=True") as error:
        y.backward()
    assert "test_autograd.py:" in str(error.value)


def test_retain_graph_gives_the_same_twice():
    x = leaf(0.3)
    y = x.exp().sum()
    assert y.backward(retain_graph=True)[x].item() == y.backward()[x].item()


@pytest.mark.parametrize("write", ["set_data", "update", "apply_update", "load"])
def test_an_overwritten_saved_value_is_refused_and_named(write):
    w = fp.Parameter(np.array([1.0, 2.0]))
    params = fp.ParameterDict({"w": w})
    loss = (w * w).sum()
    w.set_grad(np.ones(2))
    {
        "set_data": lambda: w.set_data([3.0, 4.0]),
        "update": lambda: w.update(0.1),
        "apply_update": lambda: w.apply_update(np.ones(2)),
        "load": lambda: params.load_state_dict({"w": np.zeros(2)}),
    }[write]()
    with pytest.raises(fp.VersionError, match=r"w, shape \(2,\).*saved by 'mul'.*written by"):
        loss.backward()


def test_an_optimizer_step_on_packed_parameters_moves_every_version():
    params = fp.ParameterDict({"a": fp.Parameter(np.ones(2)), "b": fp.Parameter(np.ones(3))}).pack()
    loss = (params["a"] ** 2).sum() + (params["b"] ** 2).sum()
    grads = loss.backward(retain_graph=True)
    fp.SGD(params, lr=0.1).step(grads)
    with pytest.raises(fp.VersionError, match=r"SGD\.step"):
        loss.backward()


def test_writing_one_packed_parameter_leaves_the_others_alone():
    params = fp.ParameterDict({"a": fp.Parameter(np.ones(2)), "b": fp.Parameter(np.ones(3))}).pack()
    loss = (params["b"] ** 2).sum()
    params["a"].set_data([5.0, 5.0])
    assert loss.backward()[params["b"]].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x.detach().exp().sum(), "detach"),
        (lambda x: fp.ones(()), "none of whose inputs"),
        (lambda x: (x > 0).to(fp.float32).sum(), "gt"),
        (lambda x: x.argmax().to(fp.float32), "argmax"),
    ],
)
def test_a_loss_off_the_tape_names_where_the_chain_broke(make, words):
    with pytest.raises(fp.GradientError, match=words):
        make(leaf(1.0, 2.0)).backward()


def test_no_grad_is_named_with_the_users_line():
    x = leaf(1.0)
    with fp.no_grad():
        y = x.exp()
    with pytest.raises(fp.GradientError, match=r"'exp' \(.*test_autograd.py:\d+\), under no_grad"):
        (y * 2).sum().backward()


def test_a_vector_needs_a_cotangent_of_its_shape():
    x = leaf(1.0, 2.0)
    with pytest.raises(fp.GradientError, match=r"sum\(\) or .mean\(\)"):
        (x * 2).backward()
    with pytest.raises(fp.ShapeError, match=r"\(3,\), expected \(2,\)"):
        (x * 2).backward(gradient=fp.ones(3))
    assert (x * 2).backward(gradient=np.array([1.0, 10.0]))[x].tolist() == [2.0, 20.0]


def test_strict_mode_refuses_to_cut_the_graph():
    target = leaf(0.5)
    x = leaf(0.3)
    with pytest.raises(fp.GradientError, match=r"binary_cross_entropy: .*'target'"):
        fp.binary_cross_entropy(x, target)
    with fp.strict_mode(False):
        assert not fp.binary_cross_entropy(x.detach(), target).requires_grad


def test_modes_are_restored_and_work_as_decorators():
    @fp.no_grad()
    def quiet() -> bool:
        return fp.is_grad_enabled()

    with pytest.raises(RuntimeError), fp.no_grad():
        raise RuntimeError
    assert not quiet() and fp.is_grad_enabled()
    with fp.no_grad(), fp.enable_grad():
        assert (leaf(1.0) * 2).requires_grad


def test_hooks_see_and_replace_gradients():
    x = leaf(1.0, 2.0)
    y = x * 3
    seen = []
    remove = y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 100)
    assert (y * 2).sum().backward(retain_graph=True)[x].tolist() == [600.0, 600.0]
    remove()
    assert seen == [[2.0, 2.0]]
    y.register_hook(lambda g: fp.ones(3))
    with pytest.raises(fp.ShapeError, match="hook"):
        (y * 2).sum().backward()


def test_retain_grad_puts_an_intermediate_into_the_map():
    x = leaf(1.0, 2.0)
    y = (x * 3).retain_grad()
    grads = y.square().sum().backward()
    assert grads[y].tolist() == [6.0, 12.0] and grads[x].tolist() == [18.0, 36.0]


def test_tape_prints_and_serialises():
    x = leaf(1.0, 2.0)
    tape = fp.tape((x * 2).sum())
    assert [e.op.name for e in tape] == ["mul", "sum"]
    assert "mul" in repr(tape) and "saves b" in repr(tape)
    record = json.loads(json.dumps(tape[0].record()))
    assert record["input_shapes"][0] == [2] and "test_autograd.py:" in record["where"]


def test_a_tape_shows_numbers_names_and_lines():
    w = fp.ParameterDict({"w": fp.Parameter([1.0, 2.0])})["w"]
    y = (w * fp.tensor([1.0, 2.0], requires_grad=True) + 1) / np.float32(3.0) - fp.ones(2)
    loss = fp.nn.functional.linear(y.reshape(1, 2), fp.ones(1, 2))
    shown = re.sub(r"%\d+", "%", repr(fp.tape(loss))).splitlines()
    words = [
        "%:2 = mul(w:2, %:2)",
        "%:2 = add(%:2, 1.0)",
        "%:2 = div(%:2, 3.0)",
        "%:2 = sub(%:2, %:2)",
        "reshape(%:2)",
        "(%:1x2, %:1x2, None, None)",
    ]
    for line, text in zip(shown, words, strict=True):
        assert text in line and re.search(r"  test_autograd\.py:\d+$", line), line
    loss.sum().backward()
    again = re.sub(r"%\d+", "%", repr(fp.tape(loss))).splitlines()
    assert [re.sub("  saves [ab, ]+", "  ", line) for line in shown][:5] == again[:5]


def test_engine_collects_only_inside_its_block():
    engine = fp.AutogradEngine()
    x = leaf(1.0)
    with engine.record():
        y = (x * 2).sum()
    (x * 3).sum()
    assert engine.tape_len() == 2 and [e.op.name for e in engine.tape] == ["mul", "sum"]
    assert engine.backward(y)[x].item() == 2.0
    engine.reset()
    assert engine.tape_len() == 0


def test_a_chain_of_100_000_ops():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    assert y.sum().backward()[x].item() == 1.0
    del y
    gc.collect()


def test_forward_passes_without_backward_leave_memory_flat():
    w = fp.Parameter.randn((64, 64))
    x = fp.randn(32, 64)

    def forward() -> fp.Tensor:
        return ((x @ w).gelu() @ w).softmax().sum()

    forward()
    gc.disable()
    try:
        before = fp.device().memory()
        for _ in range(1000):
            forward()
        after = fp.device().memory()
    finally:
        gc.enable()
    assert after["current"] == before["current"]
    assert after["cached"] <= before["cached"] + 1_000_000


def test_two_threads_do_not_interfere():
    results: dict[int, float] = {}

    def work(k: int) -> None:
        x = leaf(float(k))
        if k % 2:
            with fp.no_grad():
                for _ in range(300):
                    assert not (x * 2).requires_grad
        for _ in range(300):
            g = (x * x).sum().backward()
        results[k] = g[x].item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: 2.0 * k for k in range(4)}


@pytest.mark.parametrize("dtype", [fp.float16, fp.bfloat16])
def test_half_leaves_get_float32_gradients(dtype):
    h = fp.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    y = (h * h).sum()
    assert y.dtype == dtype
    g = y.backward()[h]
    assert g.dtype == fp.float32 and g.tolist() == [2.0, 4.0]


def test_nan_passes_and_ties_share():
    nan = float("nan")
    x = leaf(nan, 1.0)
    assert np.isnan(x.relu().numpy()[0]) and np.isnan(x.clamp(0, 1).numpy()[0]) and np.isnan(x.max().item())
    assert np.isnan(fp.maximum(x, 0.0).numpy()[0])
    t = leaf(2.0, 2.0, 1.0)
    assert t.max().backward()[t].tolist() == [0.5, 0.5, 0.0]
    assert leaf(1.0).clamp(0, 1).sum().requires_grad
    c = leaf(0.0, 1.0, 2.0)
    assert c.clamp(0, 1).sum().backward()[c].tolist() == [1.0, 1.0, 0.0]
    z = leaf(0.0)
    for f in (fp.relu, fp.abs, fp.sign):
        assert f(z).sum().backward()[z].item() == 0.0


def test_create_graph_refuses_where_there_is_no_second_derivative():
    x = leaf(1.0, 2.0).reshape(1, 2)
    loss = fp.nn.functional.ctc_loss(x.log_softmax(-1), [1], [1], [1])
    with pytest.raises(fp.GradientError, match=r"^ctc_loss: no second derivative"):
        loss.backward(create_graph=True)


def test_what_a_hook_returns_is_not_edited():
    x, mine = leaf(1.0, 2.0), fp.tensor(np.array([5.0, 5.0]))
    x.register_hook(lambda g: mine)
    (x * 3).sum().backward().scale_(2.0)
    assert mine.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("count", [2, 6, 7, 30])
def test_entries_of_few_and_many_inputs_tell_and_do_the_same(count):
    """A call with few inputs is finished by lines written out for each, one with many by loops. Each second input has no gradient."""
    a = np.arange(2.0 * count).reshape(count, 2)
    x = fp.tensor(a, requires_grad=True)
    for _ in range(3):  # as it is, recorded, as recorded
        parts = [p if i % 2 else p.detach() for i, p in enumerate(fp.split(x, 1))]
        y = fp.cat(parts)
        assert y.entry.input_ids == [p.id for p in parts]
        assert sum(node is not None for node in y.entry.inputs) == count // 2
        grad = (y * y).sum().backward()[x]
        np.testing.assert_array_equal(grad.numpy(), 2 * a * (np.arange(count) % 2)[:, None])
    with fp.no_grad():
        z = fp.cat([parts[1]] * count)
    with pytest.raises(fp.GradientError, match="the chain broke at 'cat'"):
        z.sum().backward()
