"""gradcheck(): compare backward with finite differences, by random projection.

For a random cotangent w and a random direction u, <w, J u> is measured with two evaluations of the function and compared with
<J^T w, u> from backward: two evaluations a projection whatever the size. Where they differ, elements are measured one by one
to report the worst. Meant for float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autograd import enable_grad, is_grad_enabled, no_grad
from ..core.errors import DTypeError, GradientError
from ..dtypes import FLOATS, check_function, checked_int, checked_number, float64
from ..rng import get_rng_state, set_rng_state
from ..tensors import Tensor, tensor

MOST = 512  # elements measured one by one for a report


def gradcheck(
    fn: Callable, inputs: Sequence[Any], eps: float = 1e-6, atol: float = 1e-7, rtol: float = 1e-5, projections: int = 3,
    order: int = 1, seed: int = 0, raise_exception: bool = True,
) -> bool:  # fmt: skip
    """True if backward of fn(*inputs) agrees with central differences.

    `inputs`: a tuple; its float64 tensors that require grad are checked (all of them if none does). `fn` returns a tensor or a
    tuple of tensors; random ops see the same numbers each time. order=2 also checks gradients of gradients. A difference above
    atol + rtol * size raises GradientError with the worst element and both values, or returns False.
    """
    check_function("gradcheck", "fn", fn)
    eps, atol, rtol = [checked_number("gradcheck", what, x) for what, x in (("eps", eps), ("atol", atol), ("rtol", rtol))]
    if not (eps > 0 and atol >= 0 and rtol >= 0):
        raise ValueError(f"gradcheck: steps or limits out of range: eps {eps}, atol {atol}, rtol {rtol}. Use eps > 0 and limits >= 0.")
    for what, n in (("projections", projections), ("order", order), ("seed", seed)):
        checked_int("gradcheck", what, n)
    inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    checked = checked or [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.dtype in FLOATS]
    for i in checked:
        if inputs[i].dtype != float64:
            raise DTypeError(f"gradcheck: input {i} is {inputs[i].dtype}: differences need float64. Pass x.to(flamepy.float64).")
    if not checked:
        raise GradientError("gradcheck: nothing to check: no float64 tensor among the inputs. Pass a tuple of tensors.")
    random = np.random.default_rng(seed)
    try:
        check_once(fn, inputs, checked, random, eps, atol, rtol, projections)
        if order > 1:
            first = first_derivative(fn, inputs, checked, random)
            check_once(first, inputs, checked, random, eps, max(atol, 1e-6), max(rtol, 1e-4), projections)
    except GradientMismatch:
        if raise_exception:
            raise
        return False
    return True


class GradientMismatch(GradientError):
    """gradcheck found a wrong gradient."""


def check_once(
    fn: Callable, inputs: tuple, checked: list[int], random: Any, eps: float, atol: float, rtol: float, projections: int
) -> None:
    start = get_rng_state()

    def evaluate(values: dict[int, np.ndarray]) -> list[np.ndarray]:
        set_rng_state(start)
        with no_grad():
            found = fn(*[tensor(values[i], device=x.device) if i in values else x for i, x in enumerate(inputs)])
        return [t.numpy().astype(np.float64) for t in outputs_of(found)]

    values = {i: inputs[i].numpy().copy() for i in checked}
    cotangents = [random.standard_normal(y.shape) for y in evaluate(values)]
    grads = backward_of(fn, inputs, values, cotangents, start)
    for i in checked:
        for _ in range(projections):
            direction = random.standard_normal(values[i].shape)
            exact = float(np.sum(grads[i] * direction))
            numeric = difference(evaluate, values, i, direction, eps, cotangents)
            # The projection may cancel; the error of a difference follows the size of its terms.
            size = float(np.sqrt(np.sum((grads[i] * direction) ** 2)))
            if not abs(exact - numeric) <= atol + rtol * max(abs(exact), size):
                raise GradientMismatch(report(evaluate, values, i, grads[i], eps, cotangents, exact, numeric))


def outputs_of(found: Any) -> list[Tensor]:
    return [t for t in (found if isinstance(found, tuple | list) else (found,)) if t.dtype in FLOATS]


def weighted_sum(rows: list[tuple[Tensor, np.ndarray]]) -> Any:
    """The sum of <weight, tensor> over the rows; None for none."""
    total: Any = None
    for y, w in rows:
        part = (y * tensor(w, device=y.device).to(y.dtype)).sum()
        total = part if total is None else total + part.to(total.device)
    return total


def backward_of(fn: Callable, inputs: tuple, values: dict, cotangents: list, start: dict) -> dict[int, np.ndarray]:
    """Gradients of sum(<cotangent, output>) by backward; zeros where none arrived."""
    set_rng_state(start)
    leaves = {i: tensor(v, device=inputs[i].device, requires_grad=True) for i, v in values.items()}
    found = outputs_of(fn(*[leaves.get(i, x) for i, x in enumerate(inputs)]))
    total = weighted_sum([(y, w) for y, w in zip(found, cotangents, strict=True) if y.requires_grad])
    grads = total.backward() if total is not None else {}
    return {i: grads[leaf.id].numpy().astype(np.float64) if leaf.id in grads else np.zeros(leaf.shape) for i, leaf in leaves.items()}


def difference(evaluate: Callable, values: dict, i: int, direction: np.ndarray, eps: float, cotangents: list) -> float:
    """Central difference of sum(<cotangent, output>) along a direction of input i."""
    above = evaluate({**values, i: values[i] + eps * direction})
    below = evaluate({**values, i: values[i] - eps * direction})
    return float(sum(np.sum(w * (a - b)) for w, a, b in zip(cotangents, above, below, strict=True))) / (2 * eps)


def report(evaluate: Callable, values: dict, i: int, grad: np.ndarray, eps: float, cotangents: list, exact: float, numeric: float) -> str:
    """The worst element of input i, measured one by one (the first MOST elements)."""
    worst, gap, pair = 0, -1.0, (exact, numeric)
    for flat in range(min(grad.size, MOST)):
        direction = np.zeros(grad.shape)
        direction.reshape(-1)[flat] = 1.0
        measured = difference(evaluate, values, i, direction, eps, cotangents)
        off = abs(measured - grad.reshape(-1)[flat])
        if not off <= gap:
            worst, gap, pair = flat, off, (float(grad.reshape(-1)[flat]), measured)
    at = tuple(int(k) for k in np.unravel_index(worst, grad.shape)) if grad.size else ()
    return (
        f"gradcheck: gradient of input {i} differs: at {at} backward gives {pair[0]:.9g}, differences give {pair[1]:.9g} "
        f"(projections {exact:.9g} and {numeric:.9g}). Check the backward rules of the ops in fn."
    )


def first_derivative(fn: Callable, inputs: tuple, checked: list[int], random: Any) -> Callable:
    """A function whose value is the gradients of fn for fixed random cotangents: checking it checks second derivatives."""
    weights: list[np.ndarray] = []

    def gradients(*xs: Any) -> tuple:
        xs = tuple([x if i not in checked or x.requires_grad else x.detach().requires_grad_() for i, x in enumerate(xs)])
        # Where the numeric side evaluates (under no_grad), the plain rules run: they measure the differentiable ones.
        create_graph = is_grad_enabled()
        with enable_grad():
            return derivatives(xs, create_graph)

    def derivatives(xs: tuple, create_graph: bool) -> tuple:
        found = outputs_of(fn(*xs))
        if not weights:
            weights.extend(random.standard_normal(y.shape) for y in found)
        grads = weighted_sum([(y * y, w) for y, w in zip(found, weights, strict=True)]).backward(create_graph=create_graph)
        return tuple([grads.get(xs[i]) for i in checked if xs[i].id in grads])

    return gradients
