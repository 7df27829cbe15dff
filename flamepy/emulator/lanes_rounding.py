"""float32 arithmetic rounded down, up or towards zero, by float64 and the sign of what that leaves out."""

from __future__ import annotations

from .lanes import Lanes, splat

WAYS = "rz", "rm", "rp"


def rounding(parts: list[str]) -> str:
    """The rounding, if it is not the nearest."""
    return next((p for p in parts if p in WAYS), "")


def directed(e: Lanes, name: str, way: str, kind: str, *args: str) -> str:
    """add, sub, mul, fma, div, rcp, sqrt of float32."""
    assert kind == "float"
    op = lambda text, *x: e.do(f"{text} <32 x double> {', '.join(x)}")
    fma = lambda a, b, c: e.intrinsic("llvm.fma.v32f64", "<32 x double>", *(("<32 x double>", x) for x in (a, b, c)))
    wide = [e.do(f"fpext <32 x float> {a} to <32 x double>") for a in args]
    zero = "zeroinitializer"
    if name in ("add", "sub", "fma"):
        a = op("fmul", wide[0], wide[1]) if name == "fma" else wide[0]
        b = wide[2] if name == "fma" else (op("fneg", wide[1]) if name == "sub" else wide[1])
        total = op("fadd", a, b)
        part = op("fsub", total, a)
        left = op("fadd", op("fsub", a, op("fsub", total, part)), op("fsub", b, part))
    elif name == "mul":
        total, left = op("fmul", wide[0], wide[1]), zero
    elif name == "sqrt":
        total = e.intrinsic("llvm.sqrt.v32f64", "<32 x double>", ("<32 x double>", wide[0]))
        left = fma(op("fneg", total), total, wide[0])
    else:
        a, b = (splat("double", "1.0"), wide[0]) if name == "rcp" else wide  # type: ignore[arg-type]
        total = op("fdiv", a, b)
        rest = fma(op("fneg", total), b, a)
        left = e.intrinsic("llvm.copysign.v32f64", "<32 x double>", ("<32 x double>", rest), ("<32 x double>", op("fmul", rest, b)))
    return narrowed(e, total, left, way)


def narrowed(e: Lanes, total: str, left: str, way: str) -> str:
    """total + left (left far below total's last bit) to float32: the nearest, then one step back if that went past."""
    near = e.do(f"fptrunc <32 x double> {total} to <32 x float>")
    back = e.do(f"fpext <32 x float> {near} to <32 x double>")
    test = lambda how, a, b: e.do(f"fcmp {how} <32 x double> {a}, {b}")
    either = lambda a, b: e.do(f"or <32 x i1> {a}, {b}")
    both = lambda a, b: e.do(f"and <32 x i1> {a}, {b}")
    same, zero = test("oeq", back, total), "zeroinitializer"
    above = either(test("ogt", back, total), both(same, test("olt", left, zero)))
    below = either(test("olt", back, total), both(same, test("ogt", left, zero)))
    positive = test("ogt", back, zero)
    negative = test("olt", back, zero)
    bits = e.do(f"bitcast <32 x float> {near} to <32 x i32>")
    if way == "rz":
        outside = either(both(positive, above), both(negative, below))
        moved = e.do(f"sub <32 x i32> {bits}, {splat('i32', 1)}")
    else:
        outside = above if way == "rm" else below
        away = negative if way == "rm" else positive
        grown, shrunk = (e.do(f"{how} <32 x i32> {bits}, {splat('i32', 1)}") for how in ("add", "sub"))
        moved = e.do(f"select <32 x i1> {away}, <32 x i32> {grown}, <32 x i32> {shrunk}")
        nought = e.do(f"fcmp oeq <32 x float> {near}, zeroinitializer")
        tiny = splat("i32", 0x80000001 if way == "rm" else 1)
        moved = e.do(f"select <32 x i1> {nought}, <32 x i32> {tiny}, <32 x i32> {moved}")
    chosen = e.do(f"select <32 x i1> {outside}, <32 x i32> {moved}, <32 x i32> {bits}")
    return e.do(f"bitcast <32 x i32> {chosen} to <32 x float>")
