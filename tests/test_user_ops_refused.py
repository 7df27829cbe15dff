"""What cannot work as an op of a user's own is refused where it is defined, and changes nothing.

Oracle: the reason in the text, which has the form of all errors (error_text.py). The functions below are wrong on purpose, each in one
way.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from error_text import FORM

import flamepy as fp
from flamepy.core.op import REGISTRY, USERS
from flamepy.core.pointwise import Pointwise
from flamepy.definitions import check_words
from flamepy.words import all_sum, real, select, tanh


def closure():
    k = 2.0

    def inside(x):
        return x * k

    return inside


def helper_with_closure(x):
    return INSIDE(x)


def g_only(g):
    return g


INSIDE, TABLE, f32exp = closure(), [1.0], np.exp
ops_exp = fp.exp


def uses_math(x):
    return math.exp(x)


def uses_numpy(x):
    return np.where(x > 0, x, 0.0)


def uses_pi(x):
    return x * math.pi


def uses_ufunc(x):
    return f32exp(x)


def uses_op(x):
    return ops_exp(x)


def uses_max(x):
    return max(x, 0.0)


def uses_list(x):
    return x * TABLE[0]


def uses_unknown(x):
    return x * not_there  # noqa: F821


def uses_if(x):
    return x if x > 0 else 0.0


def uses_and(a, b):
    return select(a > 0 and b > 0, a, b)


def uses_chain(x):
    return select(0 < x < 1, x, 0.0)


def uses_not(x):
    return select(not x > 0, x, 0.0)


def uses_method(x):
    return x.norm()


def uses_row_word(x):
    return all_sum(x)


def uses_comprehension(x):
    return sum([x for _ in range(3)])


def recurses(x):
    return recurses(x) * 0.5


def many(*xs):
    return xs[0]


def five(a, b, c, d, e):
    return a + b + c + d + e


def texts(x, mode="a"):
    return x


def pair(x):
    return x, x


def nothing(g, x):
    g * x


def rule_real(g, x):
    return g / (1.0 + real(x))


def rule_expm1_through_helper(g, x):
    return g * through_helper(x)


def through_helper(x):
    return real(x)


def rule_unknown(g, z):
    return g * z


def rule_without_g(x):
    return x


def rule_order(g, k, x):
    return g * k * x


def rule_default(g, x, k=3.0):
    return g * k * x


def rule_of_arrays(g, x):
    return g * x.conjugate()


def attributed(x, k=2.0):
    return k * x


def plain_y(x):
    return tanh(x)


FORMULAS = {
    "closure": (INSIDE, "inside uses variables.*: k. Make them attributes"),
    "helper": (helper_with_closure, "inside uses variables.*: k"),
    "lambda": (lambda x: x, "a lambda has no name"),
    "ufunc itself": (np.tanh, "not a Python function"),
    "math": (uses_math, r"no word: math\.exp\. Use exp of flamepy\.words"),
    "numpy": (uses_numpy, r"no word: np\.where\. Use select of flamepy\.words"),
    "pi": (uses_pi, r"no word: math\.pi\. Make the number a global: PI = math\.pi"),
    "ufunc": (uses_ufunc, r"no word: f32exp.*Use exp of flamepy\.words"),
    "op": (uses_op, r"no word: flamepy\.exp, an op on Tensors. Use exp of"),
    "builtin": (uses_max, "no word: Python's max. Use maximum of"),
    "list": (uses_list, "no number: TABLE, a list"),
    "unknown": (uses_unknown, "names something unknown: 'not_there'"),
    "if": (uses_if, r"cannot decide: uses_if has if.*Use select"),
    "chain": (uses_chain, "cannot decide"),
    "not": (uses_not, "cannot decide"),
    "method": (uses_method, "fails on arrays: AttributeError"),
    "row word": (uses_row_word, "a word for rows: all_sum"),
    "comprehension": (uses_comprehension, "comprehension"),
    "recursion": (recurses, "calls itself"),
    "*xs": (many, "without a fixed place"),
    "text": (texts, "an attribute is a number: mode='a'"),
    "pair": (pair, "returns no number: a tuple"),
}
RULES = {
    "real itself": (plain_y, [rule_real], "rule_real uses a word without a form on tensors: 'real'. Use abs"),
    "real": (plain_y, [rule_expm1_through_helper], "without a form on tensors: 'real'"),
    "unknown": (plain_y, [rule_unknown], "names something unknown: 'z'"),
    "two": (plain_y, [g_only, g_only], r"wrong number of rules: 2 for inputs \('x',\)"),
    "no g": (plain_y, [rule_without_g], "needs the arguments in order: g"),
    "order": (attributed, [rule_order], "needs the arguments in order"),
    "default": (attributed, [rule_default], "without defaults"),
    "nothing": (plain_y, [nothing], "nothing returns no number: a NoneType"),
    "arrays": (plain_y, [rule_of_arrays], r"fails on Tensors, as for create_graph: AttributeError"),
    "lambda": (plain_y, [lambda g: g], "a lambda"),
    "and": (uses_and, [], "cannot decide"),
    "five": (five, [], "1 to 4 inputs: five has 5"),
}


@pytest.mark.parametrize("case", FORMULAS)
def test_formulas_that_cannot_work_are_refused(case):
    formula, text = FORMULAS[case]
    with pytest.raises((ValueError, TypeError), match=text) as raised:
        fp.pointwise("refused", formula)
    assert FORM.fullmatch(str(raised.value)) and str(raised.value).startswith("refused: ")


@pytest.mark.parametrize("case", RULES)
def test_rules_that_cannot_work_are_refused(case):
    formula, rules, text = RULES[case]
    with pytest.raises(ValueError, match=text) as raised:
        fp.pointwise("refused", formula, *rules)
    assert FORM.fullmatch(str(raised.value)) and str(raised.value).startswith("refused: ")


def sum_row(r, y, x, rows, cols):
    y[r] = x[r * cols]


def row_numpy(r, y, x, rows, cols):
    y[r] = np.sum(x)


def row_order(r, x, y, rows, cols):
    y[r] = x[r]


def row_float(r, y, x, rows, cols):
    y[r] = float(x[r * cols])


def row_unknown(r, y, x, eps, rows, cols):
    y[r] = x[r] + eps


def row_type(r, y, x, rows, cols):
    y[r] = x.nothing


BODIES = {
    "numpy": ((row_numpy,), {}, r"no word: np\.sum"),
    "order": ((row_order,), {}, "arguments of row_order are not what a body gets"),
    "float": ((row_float,), {}, "no word: Python's float. Use real of"),
    "attribute": ((row_unknown,), {}, "attributes given to rowwise: none"),
    "reserved": ((row_order,), {"rows": 1}, "not an attribute: rows=1"),
    "text": ((sum_row,), {"eps": "a"}, "not an attribute: eps='a'"),
    "fails": ((row_type,), {}, "row_type fails on a row of three numbers: AttributeError"),
    "backward": ((sum_row, sum_row), {}, "arguments of sum_row"),
    "lambda": ((lambda r, y, x, rows, cols: 0,), {}, "a lambda"),
}


@pytest.mark.parametrize("case", BODIES)
def test_bodies_that_cannot_work_are_refused(case):
    bodies, attributes, text = BODIES[case]
    with pytest.raises((ValueError, TypeError), match=text) as raised:
        fp.rowwise("refused", *bodies, **attributes)
    assert FORM.fullmatch(str(raised.value)) and str(raised.value).startswith("refused: ")


def test_names_of_flamepy_are_refused_and_a_failed_definition_changes_nothing():
    for name in ("exp", "softmax", "mse_loss", "sum_to"):
        with pytest.raises(ValueError, match=f"op: name used twice: '{name}' is flamepy's own"):
            fp.pointwise(name, plain_y)
    for name, whose in (("exp", "own"), ("permuted", "own, of an internal op")):  # of the second no user has heard
        with pytest.raises(ValueError, match=f"'{name}' is flamepy's {whose}. Give the op another name"):
            fp.pointwise(name, plain_y)
    for name in ("my op", "", None):
        with pytest.raises(ValueError, match="op: not a name"):
            fp.pointwise(name, plain_y)
    with pytest.raises(TypeError, match="custom: not a function of Tensors"):
        fp.custom(np.exp)
    with pytest.raises(ValueError, match="op: not a name: '<lambda>'"):
        fp.custom(lambda x: x)
    kept = fp.pointwise("kept", plain_y)
    before = len(REGISTRY), len(USERS)
    with pytest.raises(ValueError, match="decide"):
        fp.pointwise("kept", uses_if)
    assert kept(0.0).item() == 0.0 and USERS["kept"] is kept.op
    assert before == (len(REGISTRY), len(USERS)) and "exp" in REGISTRY and "kept" not in REGISTRY


def in_a_list(x):
    return [x, x][0] * 2.0


def test_what_only_the_compiler_finds_is_one_line_each_time() -> None:
    """A list is fine in Python, so the definition cannot know; the plain backend runs it."""
    op = fp.pointwise("in_a_list", in_a_list)
    for _ in range(2):
        with pytest.raises(fp.DeviceError, match=FORM) as caught:
            op(fp.ones(3))
        assert "in_a_list: cannot be compiled" in str(caught.value) and caught.value.__suppress_context__
    assert op(fp.ones(3, device="plain")).tolist() == [2.0] * 3


def test_rules_of_flamepys_own_use_words_that_tensors_have() -> None:
    """A user's rule is asked at its definition; asking all of flamepy's would take a tenth of its import."""
    own = [op for op in REGISTRY.values() if isinstance(op, Pointwise)]
    assert len(own) > 40
    for op in own:
        check_words(op.name, op.rule)
