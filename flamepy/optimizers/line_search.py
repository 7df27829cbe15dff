"""How far to go along a direction: a line search for the strong Wolfe conditions (Nocedal & Wright 2006, algorithms 3.5 and 3.6).

The loss must fall enough (C1) and its slope must become flat enough (C2). Arithmetic of torch.optim.LBFGS, which took it from minFunc
(Schmidt 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

C1, C2 = 1e-4, 0.9


class Point(NamedTuple):
    """A step length, the loss there, its gradient, and its slope along the direction."""

    t: float
    loss: float
    gradient: Any
    slope: float


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through both points, with their slopes, is smallest within the bounds; else their middle."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    with np.errstate(all="ignore"):  # NaN and infinity are compared like other numbers
        one, two = np.float64(a.slope), np.float64(b.slope)
        d1 = one + two - 3 * np.float64(a.loss - b.loss) / np.float64(a.t - b.t)
        square = d1 * d1 - one * two
        if not square >= 0:
            return (low + high) / 2.0
        d2 = np.sqrt(square)
        if a.t <= b.t:
            best = b.t - (b.t - a.t) * ((two + d2 - d1) / (two - one + 2 * d2))
        else:
            best = a.t - (a.t - b.t) * ((one + d2 - d1) / (one - two + 2 * d2))
    return float(min(max(best, low), high))


def bracket(at: Callable[[float], Point], start: Point, t: float, most: int) -> tuple[list[Point], int, bool]:
    """One point that will do, or two with such a point between them; how many points came after the first; which of the two it was."""
    last, now, n = start, at(t), 0
    while n < most:
        if now.loss > start.loss + C1 * now.t * start.slope or (n > 1 and now.loss >= last.loss):
            return [last, now], n, False
        if abs(now.slope) <= -C2 * start.slope:
            return [now], n, True
        if now.slope >= 0:
            return [last, now], n, False
        bounds = now.t + 0.01 * (now.t - last.t), now.t * 10
        last, now = now, at(cubic_minimum(last, now, bounds))
        n += 1
    return [start, now], n, False


def inside(t: float, points: list[Point], slow: bool) -> tuple[float, bool]:
    """A length kept away from the ends of a bracket where it is near one for the second time; whether it is near one now."""
    low, high = min(points[0].t, points[1].t), max(points[0].t, points[1].t)
    margin = 0.1 * (high - low)
    if not min(high - t, t - low) < margin:
        return t, False
    if slow or t >= high or t <= low:
        return (high - margin if abs(t - high) < abs(t - low) else low + margin), False
    return t, True


def strong_wolfe(at: Callable[[float], Point], start: Point, t: float, longest: float, tolerance: float, most: int) -> tuple[Point, int]:
    """The point to go to, and how many points were looked at. `at` looks at one; t: the first; longest: element of the direction."""
    points, n, done = bracket(at, start, t, most)
    slow, low, high = False, *order(points)
    while not done and n < most:
        if abs(points[1].t - points[0].t) * longest < tolerance:
            break
        t, slow = inside(cubic_minimum(points[0], points[1]), points, slow)
        now = at(t)
        n += 1
        if now.loss > start.loss + C1 * t * start.slope or now.loss >= points[low].loss:
            points[high] = now
            low, high = order(points)
        else:
            done = abs(now.slope) <= -C2 * start.slope
            if not done and now.slope * (points[high].t - points[low].t) >= 0:
                points[high] = points[low]
            points[low] = now
    return points[low], n + 1


def order(points: list[Point]) -> tuple[int, int]:
    """Which point is lower, which is higher."""
    return (0, 1) if points[0].loss <= points[-1].loss else (1, 0)
