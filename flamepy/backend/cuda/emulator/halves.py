"""Operators of float16 that Numba calls and leaves to be linked: NVIDIA's are C++, these are PTX with the same names.

Each takes the address of its result, and those of its operands; it returns 0. Read next: calls.py.
"""

from __future__ import annotations

ROUNDED = "cvt.rn.f16.f32 %h3, %f3; st.b16 [%a1], %h3;"
NARROW = {"pl": "add", "mi": "sub", "ml": "mul"}
COMPARED = {"eq": "eq", "ne": "neu", "gt": "gt", "lt": "lt", "ge": "ge", "le": "le"}
BODIES = {
    **{name: f"{word}.f16 %h3, %h1, %h2; st.b16 [%a1], %h3;" for name, word in NARROW.items()},
    "dv": f"div.rn.f32 %f3, %f1, %f2; {ROUNDED}",
    **{name: f"setp.{word}.f32 %p1, %f1, %f2; selp.b16 %h3, 1, 0, %p1; st.u8 [%a1], %h3;" for name, word in COMPARED.items()},
}
ALONE = {"ps": "st.b16 [%a1], %h1;", "ng": f"neg.f32 %f3, %f1; {ROUNDED}"}


def function(name: str, body: str, operands: int) -> str:
    given = range(1, operands + 2)
    parameters = ", ".join(f".param .b64 given_{k}" for k in given)
    addresses = " ".join(f"ld.param.b64 %a{k}, [given_{k}];" for k in given)
    values = " ".join(f"ld.b16 %h{k}, [%a{k + 1}]; cvt.f32.f16 %f{k}, %h{k};" for k in given[:-1])
    return f""".visible .func (.param .b32 returned) {name} ({parameters})
{{
    .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .b64 %a<4>; .reg .b32 %zero; .reg .pred %p1;
    {addresses} {values} {body} mov.b32 %zero, 0; st.param.b32 [returned+0], %zero; ret;
}}
"""


def operators() -> str:
    """All of them, as the text of a module."""
    two = [function(f"_Z{name}RK6__halfS1__nbst", body, 2) for name, body in BODIES.items()]
    return "".join(two + [function(f"_Z{name}RK6__half_nbst", body, 1) for name, body in ALONE.items()])
