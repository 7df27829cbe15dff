"""Operators of float16 and bfloat16 that Numba calls and leaves to be linked: NVIDIA's are C++, these are PTX with the same names.

Each takes the address of its result, and those of its operands; it returns 0. What makes a bfloat16 of another number has one address
more, before that of the result, and does nothing with it.
"""

from __future__ import annotations

TYPES = {"f16": "6__half", "bf16": "13__nv_bfloat16"}  # as C++ writes them in names
NARROW = {"pl": "add", "mi": "sub", "ml": "mul"}
COMPARED = {"eq": "eq", "ne": "neu", "gt": "gt", "lt": "lt", "ge": "ge", "le": "le"}
WHOLE = {"s": "s16", "t": "u16", "i": "s32", "j": "u32", "l": "s64", "m": "u64", "x": "s64", "y": "u64"}
# float64 to float32, so that it may be rounded again: a last bit that is set says that something was cut off.
TO_ODD = "cvt.rz.f32.f64 %f1, %d1; cvt.f64.f32 %d2, %f1; setp.ne.f64 %p1, %d1, %d2; mov.b32 %i1, %f1; @%p1 or.b32 %i1, %i1, 1;"
TO_ODD += " mov.b32 %f1, %i1;"


def function(name: str, addresses: int, body: str) -> str:
    """A function whose arguments are addresses, %a1 and so on."""
    given = range(1, addresses + 1)
    parameters = ", ".join(f".param .b64 given_{k}" for k in given)
    loads = " ".join(f"ld.param.b64 %a{k}, [given_{k}];" for k in given)
    return f""".visible .func (.param .b32 returned) {name} ({parameters})
{{
    .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .f64 %d<3>; .reg .b64 %a<4>; .reg .b64 %l<2>; .reg .b32 %i<2>; .reg .b32 %zero; .reg .pred %p1;
    {loads} {body} mov.b32 %zero, 0; st.param.b32 [returned+0], %zero; ret;
}}
"""


def operators() -> str:
    """All of them, as the text of a module."""
    return "".join(arithmetic("f16") + arithmetic("bf16") + made() + given_back())


def arithmetic(kind: str) -> list[str]:
    """+ - * / and comparisons; a sign."""
    name, rounded = TYPES[kind], f"cvt.rn.{kind}.f32 %h3, %f3; st.b16 [%a1], %h3;"
    two = {
        **{sign: f"{word}.{kind} %h3, %h1, %h2; st.b16 [%a1], %h3;" for sign, word in NARROW.items()},
        "dv": f"div.rn.f32 %f3, %f1, %f2; {rounded}",
        **{sign: f"setp.{word}.f32 %p1, %f1, %f2; selp.b16 %h3, 1, 0, %p1; st.u8 [%a1], %h3;" for sign, word in COMPARED.items()},
    }
    one = {"ps": "st.b16 [%a1], %h1;", "ng": f"neg.f32 %f3, %f1; {rounded}"}
    value = lambda k: f"ld.b16 %h{k}, [%a{k + 1}]; cvt.f32.{kind} %f{k}, %h{k};"
    return [function(f"_Z{sign}RK{name}S1__nbst", 3, f"{value(1)} {value(2)} {body}") for sign, body in two.items()] + [
        function(f"_Z{sign}RK{name}_nbst", 2, f"{value(1)} {body}") for sign, body in one.items()
    ]


def made() -> list[str]:
    """bfloat16(x), rounded once."""
    ways = {"f": "ld.f32 %f1, [%a3];", "d": f"ld.f64 %d1, [%a3]; {TO_ODD}"}
    for letter, kind in WHOLE.items():
        register = {"16": "%h1", "32": "%i1", "64": "%l1"}[kind[1:]]
        ways[letter] = f"ld.{kind} {register}, [%a3]; cvt.rn.f64.{kind} %d1, {register}; {TO_ODD}"
    put = "cvt.rn.bf16.f32 %h3, %f1; st.b16 [%a2], %h3;"
    return [function(f"_ZN{TYPES['bf16']}C1E{letter}_nbst", 3, f"{body} {put}") for letter, body in ways.items()]


def given_back() -> list[str]:
    """float32(x) and whole numbers of a bfloat16, towards zero."""
    ways = {"f": "st.f32 [%a1], %f1;"}
    for letter, kind in WHOLE.items():
        register = {"16": "%h2", "32": "%i1", "64": "%l1"}[kind[1:]]
        ways[letter] = f"cvt.rzi.{kind}.f32 {register}, %f1; st.{kind} [%a1], {register};"
    name, value = TYPES["bf16"], "ld.b16 %h1, [%a2]; cvt.f32.bf16 %f1, %h1;"
    return [function(f"____nv_bfloat16__ZNK{name}cv{letter}Ev_1", 2, f"{value} {body}") for letter, body in ways.items()]
