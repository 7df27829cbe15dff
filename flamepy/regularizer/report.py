"""What each loss term contributes to the gradients of parameters: norms, shares and cosines.

A term's share is its norm divided by the sum of all terms' norms: between 0 and 1, together 1. The cosine of two terms says whether
they pull one way (1) or against each other (-1). Products are summed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from ..autograd import no_grad
from ..dtypes import float64
from ..errors import DTypeError
from ..gradient import GradientMap
from ..parameter import Parameter
from .evaluation import reason_of
from .matrices import given


class Shares(NamedTuple):
    """The terms at one parameter, or at all of them together: by name, None for a term that failed.

    `cosines` are by pair of names, None where one of the two has norm 0 (no direction). `total` is the norm of the sum of all terms
    that did not fail.
    """

    norms: dict[str, float | None]
    shares: dict[str, float | None]
    cosines: dict[tuple[str, str], float | None]
    total: float

    @property
    def dominant(self) -> str | None:
        """The term with the largest share; None where no gradient arrives, or where norms are not finite: then shares are NaN."""
        known = {name: share for name, share in self.shares.items() if share is not None and share > 0}
        return max(known, key=lambda name: known[name]) if known else None


class ParameterReport(dict[str, Shares]):
    """Shares by name of parameter; `joint` are those over all of them together, with one norm and cosine over all gradients."""

    joint: Shares

    @property
    def dominant(self) -> str | None:
        """The term with the largest share of the joint norm."""
        return self.joint.dominant

    def __repr__(self) -> str:
        terms = list(self.joint.norms)
        width = max([len(name) for name in (*self, "together")])
        rows = [" ".join([" " * width, *[f"{t:>9}" for t in terms], f"{'norm':>9}"])]
        for name, row in (*self.items(), ("together", self.joint)):
            shares = ["failed" if share is None else f"{share:.1%}" for share in row.shares.values()]
            rows.append(
                " ".join([f"{name:{width}}", *[f"{s:>{max(9, len(t))}}" for s, t in zip(shares, terms, strict=True)], f"{row.total:9.3g}"])
            )
        known = [f"cos({a}, {b}) = {cosine:.2f}" for (a, b), cosine in self.joint.cosines.items() if cosine is not None]
        return "\n".join([*rows, *([", ".join(known)] if known else [])])


Products = dict[tuple[int, int], float]


def products_of(maps: Sequence[Any], keys: Iterable[Any]) -> dict[Any, Products]:
    """For each key the products of the gradients in the maps, (i, j) with i <= j, in float64; none where one of the two has no entry."""
    found: dict[Any, Products] = {}
    with no_grad():
        for key in keys:
            gradients = [(i, g.detach().to(float64)) for i, m in enumerate(maps) if m is not None and (g := m.get(key)) is not None]
            found[key] = {(i, j): (a * b).sum().item() for n, (i, a) in enumerate(gradients) for j, b in gradients[n:]}
    return found


def shares_of(names: Sequence[str], failed: Mapping[str, str], products: Products) -> Shares:
    norms = [None if name in failed else math.sqrt(products.get((i, i), 0.0)) for i, name in enumerate(names)]
    known = [n for n in norms if n is not None]
    whole = math.fsum(known) if all(map(math.isfinite, known)) else math.nan
    shares = [None if n is None else n / whole if whole else 0.0 for n in norms]
    cosines: dict[tuple[str, str], float | None] = {}
    for i, j in combinations(range(len(names)), 2):
        a, b = norms[i], norms[j]
        cosines[names[i], names[j]] = products.get((i, j), 0.0) / a / b if a and b else None
    total = math.fsum([p if i == j else 2 * p for (i, j), p in products.items()]) if whole == whole else math.nan
    return Shares(
        dict(zip(names, norms, strict=True)),
        dict(zip(names, shares, strict=True)),
        cosines,
        math.sqrt(max(total, 0.0)) if total == total else total,
    )


def report(losses: Mapping[str, Any], params: Any) -> tuple[ParameterReport, dict[str, str]]:
    """The report, and why terms failed, by name."""
    if not isinstance(losses, Mapping):
        raise DTypeError(f"parameter_report: no dict of losses: {type(losses).__name__}. Pass {{name: loss}}.")
    found = list(dict.fromkeys(given(params)))
    for p in found:
        if not isinstance(p, Parameter):
            raise TypeError(
                f"parameter_report: not a Parameter: {type(p).__name__}. Pass a ParameterDict, a module or a list of Parameters."
            )
    if not losses or not found:
        raise ValueError(
            f"parameter_report: nothing to report on: {len(losses)} losses, {len(found)} parameters. Pass at least one of each."
        )
    maps: list[GradientMap | None] = []
    failed: dict[str, str] = {}
    for name, loss in losses.items():
        try:
            maps.append(loss.backward(retain_graph=True))
        except Exception as error:
            failed[name] = reason_of(error)
            maps.append(None)
    names = list(losses)
    products = products_of(maps, found)
    rows = ParameterReport()
    for p in found:
        rows[p.label if p.label not in rows else f"{p.label} ({p.id})"] = shares_of(names, failed, products[p])
    together: Products = {}
    for one in products.values():
        for pair, value in one.items():
            together[pair] = together.get(pair, 0.0) + value
    rows.joint = shares_of(names, failed, together)
    return rows, failed
