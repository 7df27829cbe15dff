"""What is checked where users define an op: that its functions can run on every backend, and always compute the same.

A formula or row body is compiled, so it may read numbers, words (flamepy.words) and plain functions from its module, nothing else. They
are taken as they are at the definition: the op works on a copy of the function that sees these values only, so that a global that is
changed later changes nothing. Then each function is tried: a formula on NumPy arrays, a rule on Tensors as well (create_graph), a body
on one row of three numbers. flamepy's own functions are taken as they are.
"""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Sequence
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from .backend.formula import row_words
from .backend.plain.rows import ON_NUMBERS
from .core.custom import WORDS
from .core.device import device
from .core.door import Door
from .core.errors import DeviceError, ShapeError
from .core.formula import ON_ARRAYS, globals_of, typed
from .core.modes import no_grad
from .core.op import PUBLIC, SCALARS, Op, arguments, is_own
from .core.pointwise import on_tensors
from .core.tape import TapeEntry
from .core.tensor import Tensor
from .core.words import VOCABULARY

OTHER_NAMES = {
    "fabs": "abs", "absolute": "abs", "min": "minimum", "max": "maximum", "fmin": "minimum", "power": "pow", "round": "rint",
    "where": "select", "float": "real",
}  # fmt: skip
BUILTINS = ("range",)
ROW_BUILTINS = ("range", "min", "max", "abs", "int", "len", "bool")
NOT_THERE = object()
MOST_INPUTS = 4  # arrays that a kernel of a formula reads
FLOAT64 = np.dtype("float64")


def compilable(name: str, function: Any, in_rows: bool = False, rest: bool = False) -> Any:
    """`function`, a part of op `name`, checked and made independent of its module. `rest`: it may end in *_, for numbers it does not need.
    Raises TypeError or ValueError."""
    if isinstance(function, FunctionType) and is_own(function):
        return function
    return independent(name, function, in_rows, (), rest)


def independent(name: str, function: Any, in_rows: bool, callers: tuple, rest: bool = False) -> Any:
    check_form(name, function, rest)
    if not in_rows:
        check_branches(name, function)
    if function in callers:
        raise ValueError(f"{name}: a function that calls itself cannot be compiled: {function.__name__}. Use a for loop.")
    scope: dict[str, Any] = {"__name__": function.__module__ or "__main__", "__builtins__": builtins}
    for key in sorted(globals_of(function.__code__)):
        value = function.__globals__.get(key, NOT_THERE)
        if value is NOT_THERE:
            check_builtin(name, function, key, in_rows)
        elif isinstance(value, SCALARS):
            scope[key] = value.item() if isinstance(value, np.generic) else value
        elif isinstance(value, FunctionType) and not is_own(value):
            scope[key] = independent(name, value, in_rows, (*callers, function))
        else:
            check_value(name, function, key, value, in_rows)
            scope[key] = value
    twin = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    twin.__doc__ = function.__doc__
    return twin


# ---- what a function may be and read ---------------------------------------------------------------------------------------------
def check_form(name: str, function: Any, rest: bool) -> None:
    """Refuse what is no plain function with a name of its own and positional arguments."""
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name}: not a Python function: {function!r}. Write it with def, in words of flamepy.words.")
    code, label = function.__code__, function.__name__
    if label == "<lambda>":
        raise ValueError(f"{name}: a lambda has no name for its kernel: line {code.co_firstlineno}. Write it with def.")
    if code.co_freevars:
        free = ", ".join(code.co_freevars)
        raise ValueError(
            f"{name}: {label} uses variables of the function around it, which cannot be compiled: {free}. Make them attributes "
            "(arguments with a default) or globals of the module."
        )
    if code.co_kwonlyargcount or code.co_flags & (0 if rest else inspect.CO_VARARGS) | code.co_flags & inspect.CO_VARKEYWORDS:
        raise ValueError(f"{name}: {label} has arguments without a fixed place: {inspect.signature(function)}. List each by name.")
    if any([isinstance(c, CodeType) for c in code.co_consts]) or code.co_flags & inspect.CO_GENERATOR:
        raise ValueError(f"{name}: a function or comprehension inside a function cannot be compiled: in {label}. Use a for loop.")


def check_branches(name: str, function: Any) -> None:
    """Refuse what asks whether an input is true: a formula may get a whole array for it."""
    for i in dis.get_instructions(function.__code__):
        if ("JUMP" in i.opname and "IF" in i.opname) or i.opname == "UNARY_NOT":
            raise ValueError(
                f"{name}: an array cannot decide: {function.__name__} has if, and, or, not, while or a chained comparison. "
                "Use select(condition, a, b), and & or | between conditions."
            )


def check_builtin(name: str, function: Any, key: str, in_rows: bool) -> None:
    if not hasattr(builtins, key):
        raise ValueError(f"{name}: {function.__name__} names something unknown: '{key}'. Define or import it before the op.")
    if key not in (ROW_BUILTINS if in_rows else BUILTINS):
        raise ValueError(f"{name}: {function.__name__} uses what is no word: Python's {key}. {advice(key)}")


def check_value(name: str, function: Any, key: str, value: Any, in_rows: bool) -> None:
    """Refuse a global that is neither a word nor a function flamepy's own formulas use."""
    label = function.__name__
    if isinstance(value, ModuleType):
        steps = list(dis.get_instructions(function.__code__))
        what = str(next(b.argval for a, b in pairwise(steps) if a.opname == "LOAD_GLOBAL" and a.argval == key))
        is_number = isinstance(getattr(value, what, None), SCALARS)
        hint = f"Make the number a global: {what.upper()} = {key}.{what}." if is_number else advice(what)
        raise ValueError(f"{name}: {label} uses what is no word: {key}.{what}. {hint}")
    if not isinstance(value, FunctionType):
        if callable(value):
            raise ValueError(f"{name}: {label} uses what is no word: {key} = {value!r}. {advice(getattr(value, '__name__', key))}")
        raise ValueError(f"{name}: {label} reads what is no number: {key}, a {type(value).__name__}. Use numbers, words and functions.")
    if hasattr(value, "op") or value in PUBLIC.values():
        raise ValueError(f"{name}: {label} uses what is no word: flamepy.{value.__name__}, an op on Tensors. {advice(value.__name__)}")
    if value.__module__ == row_words.__name__ and not in_rows:
        raise ValueError(f"{name}: {label} uses a word for rows: {key}. Use flamepy.rowwise for what a whole row decides.")


def advice(name: str) -> str:
    """Which word to use in the place of a function of that name."""
    word = OTHER_NAMES.get(name, name)
    if word in VOCABULARY:
        return f"Use {word} of flamepy.words."
    return f"Use words of flamepy.words: {', '.join(sorted(VOCABULARY))}."


# ---- trying it -------------------------------------------------------------------------------------------------------------------
def check_rules(name: str, rules: tuple, inputs: tuple[str, ...], attributes: dict[str, Any]) -> None:
    """Refuse a rule that names something unknown, or uses a word that cannot be applied to Tensors."""
    known = {"g", "y", *inputs, *attributes}
    for rule in rules:
        if rule is None:
            continue
        names, defaults = arguments(rule)
        for unknown in {*names, *defaults} - known:
            raise ValueError(f"{name}: the rule {rule.__name__} names something unknown: '{unknown}'. Known: {sorted(known)}.")
        places = [n in attributes for n in names]
        if defaults or "g" not in names or places != sorted(places):
            form = f"g, then inputs or y, then attributes, without defaults: {inspect.signature(rule)}"
            raise ValueError(f"{name}: the rule {rule.__name__} needs the arguments in order: {form}. Reorder them.")
        if places.count(False) > MOST_INPUTS:
            raise ValueError(f"{name}: the rule {rule.__name__} names too many arrays: {len(names)}. At most {MOST_INPUTS}; use custom().")


def check_words(name: str, rules: tuple) -> None:
    """Refuse a rule with a word that cannot be applied to Tensors. (Of flamepy's own ops a test does.)"""
    for rule in rules:
        for word in () if rule is None else words_of(rule):
            if not VOCABULARY[word].on_tensors:
                usable = ", ".join(sorted([w for w, entry in VOCABULARY.items() if entry.on_tensors]))
                raise ValueError(f"{name}: the rule {rule.__name__} uses a word without a form on tensors: '{word}'. Use {usable}.")


def words_of(formula: Any) -> list[str]:
    """The words of the vocabulary a formula and its helpers use."""
    found, todo = [], [formula]
    for f in todo:
        for name in sorted(globals_of(f.__code__)):
            value = f.__globals__.get(name)
            word = getattr(value, "__name__", "")
            if word in VOCABULARY and VOCABULARY[word].scalar is value:
                found.append(word)
            elif isinstance(value, FunctionType) and value not in todo:
                todo.append(value)
    return found


def try_out(name: str, formula: Any, rules: tuple, inputs: tuple[str, ...], attributes: dict[str, Any]) -> None:
    """Refuse rules that do not fit, a user's formula or rule that cannot run, and attributes that are no numbers."""
    check_rules(name, rules, inputs, attributes)
    if is_own(formula):
        return
    check_words(name, rules)
    if not 1 <= len(inputs) <= MOST_INPUTS:
        raise ValueError(f"{name}: a formula has 1 to {MOST_INPUTS} inputs: {formula.__name__} has {len(inputs)}. Use custom() for more.")
    for key, value in attributes.items():
        if not isinstance(value, SCALARS):
            raise TypeError(f"{name}: an attribute is a number: {key}={value!r}. Use custom() for others.")
    try_formula(name, formula, [*[None] * len(inputs), *attributes.values()])
    for rule in rules:
        if rule is not None:
            values = [attributes.get(n) for n in arguments(rule)[0]]
            try_formula(name, rule, values)
            try_rule(name, rule, values)


def try_formula(name: str, function: Any, values: Sequence[Any]) -> None:
    """Apply a formula to arrays of two numbers, as the plain backend does; None among the values stands for an input."""
    given = [np.full(2, 0.5) if v is None else v for v in values]
    y = tried(name, function, typed(function, FLOAT64, ON_ARRAYS), given, "arrays")
    if not isinstance(y, SCALARS) and not (isinstance(y, np.ndarray) and y.shape == (2,) and y.dtype.kind in "fiub"):
        raise ValueError(f"{name}: {function.__name__} returns no number: a {type(y).__name__}. Return one number for each element.")


def try_rule(name: str, function: Any, values: Sequence[Any]) -> None:
    """Apply a rule to Tensors, as create_graph does."""
    given = [Tensor.of(name, np.full(2, 0.5), device("plain")) if v is None else v for v in values]
    with no_grad():
        y = tried(name, function, on_tensors(function, FLOAT64), given, "Tensors, as for create_graph")
    if not isinstance(y, Tensor):
        raise ValueError(f"{name}: {function.__name__} does not depend on its inputs: it returned {y!r}. Return g times a derivative.")


def try_body(name: str, function: Any, arrays: int, values: Sequence[Any]) -> None:
    """Run a body on one row of three numbers; `values` are its attributes."""
    rows = [np.full(3, 0.5) for _ in range(arrays)]
    tried(name, function, typed(function, FLOAT64, ON_NUMBERS), [0, *rows, *values, 1, 3], "a row of three numbers")


def tried(name: str, function: Any, form: Any, given: Sequence[Any], what: str) -> Any:
    try:
        with np.errstate(all="ignore"):
            return form(*given)
    except ArithmeticError:  # numbers that do not suit it
        return 0.5
    except Exception as problem:
        text = f"{type(problem).__name__}: {problem}"
        raise ValueError(f"{name}: {function.__name__} fails on {what}: {text}. Write it so that it runs there.") from problem


# ---- what a custom op's functions return -----------------------------------------------------------------------------------------
def check_result(op: Op, found: Any) -> None:
    """Raise TypeError unless a user's forward gave a Tensor or a tuple of them, with or without extras; ValueError for an extra whose name
    is a word of rules already, which would stand for something else there."""
    y = found[0] if len(found) == 2 else None
    ys = y if type(y) is tuple else (y,)
    if wrong := [t for t in ys if not isinstance(t, Tensor)] or ([y] if not ys else []):
        raise TypeError(f"{op.title}: its forward gave no Tensor: {type(wrong[0]).__name__}. Return a Tensor or a tuple of them.")
    if taken := sorted({*WORDS, "y", *op.inputs, *op.attributes} & found[1].keys()):
        raise ValueError(f"{op.title}: an extra is named as a rule names something else: '{taken[0]}'. Give it another name.")


def checked_cotangents(op: Op, entry: TapeEntry, found: Sequence[Any], results: set[tuple[int, ...]]) -> Sequence[Any]:
    """What a user's rule returned, as Tensors of the inputs' types. The shape of a result (`results`) that the input was broadcast to is
    summed later; another one raises ShapeError, another device DeviceError, what is no Tensor, array or number TypeError."""
    if len(found) != len(entry.inputs):
        return found  # sum_to_shapes() says so
    result: list[Any] = []
    for i, (node, spec, dx) in enumerate(zip(entry.inputs, entry.call.ins, found, strict=True)):
        if node is None or dx is None or spec is None:
            result.append(None)
            continue
        what = f"the gradient for {op.inputs[i] if i < len(op.inputs) else f'input {i}'}"
        if not isinstance(dx, Tensor):
            if isinstance(dx, bool | np.bool_) or not (isinstance(dx, int | float) or hasattr(dx, "__array__")):
                raise TypeError(f"{op.title}: {what} is no Tensor: {type(dx).__name__}. Return one Tensor for each input, or None.")
            dx = Tensor.of(op.title, dx, spec.device)
        if dx.device is not spec.device:
            advice = f"Move it with .to('{spec.device}')"
            raise DeviceError(f"{op.title}: {what} is on another device: {dx.device}, the input on {spec.device}. {advice}.")
        if dx.shape != spec.shape and not (dx.shape in results and broadcasts(spec.shape, dx.shape)):
            raise ShapeError(f"{op.title}: {what} has another shape: {dx.shape}, the input {spec.shape}. Return one of its shape.")
        result.append(dx if dx.dtype == spec.computed else dx.to(spec.computed))
    return result


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether `shape` can be broadcast to the other."""
    aligned = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all([n in (1, m) for n, m in aligned])


Door.checked, Door.tried = staticmethod(compilable), staticmethod(try_out)
Door.resulted, Door.derived = staticmethod(check_result), staticmethod(checked_cotangents)
