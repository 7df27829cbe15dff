"""A function made of ops, as the planned calls that it makes: found by what it was given, without the Python between them.

What such a function does follows from its arguments: shapes, dtypes, numbers, names. The third call with like ones is watched. Where
nothing but planned ops and checks ran, on tensors that were given or that these ops made, the calls are written out as one function.
So are launches of its own that fill new memory, with random numbers say, of which each call takes the next place. Few numbers that it
uploads are kept: results are copies of them.

    def route(t0, t1):                     # the tensors given
        m = [t1.buffer]
        k0.run(m)
        t2 = k0.finish(k0, (t1,), m, k1, 3)
        k2.device.require(k3, t2.buffer, within=k4)
        m = [t0.buffer, t2.buffer]
        ...
        return t4

Whoever listens to what ops do hears of it as before, since then the function itself runs. So it does where calls do not go straight to
their plans (autocast), and where it looks at numbers, or writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from itertools import takewhile
from math import copysign
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from ..backend.base import Buffer
from ..backend.recorder import Recorder, divert
from ..backend.run import Action, OnArrays, Required, Spot, Step
from ..bus import assigned, before, changed, heard, outside, seen
from ..core.device import device as device_of
from ..core.door import Door
from ..core.modes import thread
from ..core.tensor import Tensor
from ..habits import called
from . import plan
from .finish import planned
from .kept import forgetting

MOST = 1024  # kinds of calls of one function that are known
SMALL = 256  # numbers of a tensor that is copied
TRIES = 5  # a call that is no route by then never is one
Made = TypeVar("Made", bound=Callable[..., Any])


def slice_part(v: slice) -> Any:
    a, b, c = v.start, v.stop, v.step
    whole = (a is None or type(a) is int) and (b is None or type(b) is int) and (c is None or type(c) is int)
    return (slice, a, b, c) if whole else (slice, *parts((a, b, c)))


def tuple_part(v: tuple) -> Any:
    for n in v:
        if type(n) is not int:
            return (tuple, *parts(v))
    return v


NUMBERS: dict[type, Callable[[Any], Any]] = {  # what a value of each type is known by; of a list what it holds, for it may change
    int: int, str: str, type(None): type, type(...): type, bool: lambda v: (bool, v), slice: slice_part, tuple: tuple_part,
    float: lambda v: (float, v, copysign(1.0, v)), list: lambda v: (list, *parts(v)),
}  # fmt: skip


class Parts(dict[type, Callable[[Any], Any]]):
    """NUMBERS, and what dtypes and tensors are known by."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        if not issubclass(kind, (Tensor, np.dtype)):  # a union would be made at each call
            raise KeyError(kind)
        return self.setdefault(kind, attrgetter("spec") if issubclass(kind, Tensor) else np.dtype)


PART = Parts(NUMBERS)


def parts(values: Iterable[Any]) -> list[Any]:
    """How arguments take part in the key of a call. Raises KeyError for what may not."""
    return [v if type(v) is int else v.spec if isinstance(v, Tensor) else PART[type(v)](v) for v in values]


def routed(plain: Made) -> Made:
    """The function that does what `plain` does, by its routes."""
    routes: Any = {}, {}  # by key, while nothing is recorded, and while it is
    counts: Any = {}, {}  # how often calls came that have no route
    forgetting.extend([known.clear for known in routes])  # else results would have specs that no other tensor has

    @wraps(plain)
    def function(*args: Any, **options: Any) -> Any:
        if heard or seen or Door.call is not plan.call:
            return plain(*args, **options)
        try:
            n = len(args)
            if n == 1:  # written out for few: a list of them takes as long as its items do
                (a,) = args
                key: Any = a.spec if isinstance(a, Tensor) else (a if type(a) is int else PART[type(a)](a),)
            elif n == 2:
                a, b = args
                key = a.spec if isinstance(a, Tensor) else PART[type(a)](a), b if type(b) is int else PART[type(b)](b)
            elif n == 3 and isinstance(args[0], Tensor):
                a, b, c = args
                key = a.spec, b if type(b) is int else PART[type(b)](b), c if type(c) is int else PART[type(c)](c)
            else:
                key = ()
                for a in args:
                    key += (a if type(a) is int else a.spec if isinstance(a, Tensor) else PART[type(a)](a),)
            if options:
                for name, value in options.items():
                    key = None, key, name, PART[type(value)](value)
            known = routes[thread.modes.recording]
            route = known.get(key)
        except (KeyError, RecursionError):
            return plain(*args, **options)
        if route is not None and (y := route(*args, *options.values()) if options else route(*args)) is not None:
            return y
        return missed(plain, args, options, known, key, counts[thread.modes.recording])

    return called(function, plain.__name__)  # type: ignore[no-any-return]


def missed(plain: Any, args: tuple, options: dict[str, Any], known: dict[Any, Any], key: Any, times: dict[Any, int]) -> Any:
    """A call that no route does; the third like it is watched, and what never is a route is the function itself from some time on."""
    count = times.get(key, 0) if key not in known else 2
    if count < 2 and len(times) >= MOST:
        known.clear()
        times.clear()
    times[key] = count + 1
    if count == TRIES and not options:
        known[key] = plain
    if count < 2 or count >= TRIES:
        return plain(*args, **options)
    return Watch((*args, *options.values())).watched(plain, args, options, known, key)


# ---- watching a call -------------------------------------------------------------------------------------------------------------
class Here(threading.local):
    """The call of this thread that is watched."""

    watch: Any = None


here = Here()


def note(call: Any, xs: Sequence[Any], memory: Sequence[Any], y: Any, attributes: dict[str, Any]) -> None:
    if here.watch is not None:
        here.watch.add(call, xs, memory, y, attributes)


def told(op: Any, xs: Sequence[Any], y: Any) -> None:
    if here.watch is not None and op is not None and here.watch.last is not y:
        here.watch.fits = False


def refused(owner: Any, *what: Any) -> None:
    if here.watch is not None and owner is not None:  # lists of numbers are nobody's
        here.watch.fits = False


class Watch(Recorder):
    """Stands in the device's stream and in the bus while a function runs, and writes down its planned calls and its checks; `fits`: whether
    that is all there is. `names` says what a route calls each tensor, by id, `buffers` its memory; `lines` are the route's."""

    def __init__(self, values: tuple):
        super().__init__()
        self.alive, self.constants, self.lines = [], [], []  # type: ignore[var-annotated]
        self.names, self.buffers, self.held = {}, {}, []  # type: ignore[var-annotated]
        self.required: list[Buffer] = []  # by a planned call, which requires it itself
        self.uploaded: list[Buffer] = []  # and kept: nobody else gets them, but a copy
        self.parameters = [self.parameter(v, f"a{i}") for i, v in enumerate(values)]
        self.device = self.alive[0].device if self.alive else device_of(None)
        if not self.alive:
            self.lines += [f"if default() is not {self.constant(self.device)}:", "    return None"]
        self.fits = here.watch is None and not self.device.recorders
        self.last: Any = None  # what the planned call gave that was noted last

    def parameter(self, value: Any, name: str) -> str:
        """What a route calls this argument; Tensors in it have names of their own."""
        if isinstance(value, Tensor):
            name = f"t{len(self.alive)}"
            if (first := self.names.setdefault(id(value), name)) != name:  # given twice: so it has to be then
                self.lines += [f"if {name} is not {first}:", "    return None"]
            else:
                self.buffers[id(value.buffer)] = "" if id(value.buffer) in self.buffers else f"{name}.buffer"
            self.alive.append(value)
        elif type(value) in (tuple, list) and value:
            at = len(self.lines)
            parts = "".join([f"{self.parameter(v, f'{name}_{i}')}, " for i, v in enumerate(value)])
            self.lines.insert(at, f"{parts} = {name}")
        return name

    def watched(self, run: Callable[..., Any], args: tuple, options: dict[str, Any], known: dict[Any, Any], key: Any) -> Any:
        """run(*args, **options); after it `known` has by the key what can be run instead, where there is such a thing."""
        if not self.fits:
            return run(*args, **options)
        listening: Any = (planned, note), (heard, told), *[(topic, refused) for topic in (seen, changed, before, assigned, outside)]
        here.watch = self
        for topic, hear in listening:
            topic.append(hear)
        try:
            with divert(self.device, self):
                y = run(*args, **options)
                self.launches(())
        finally:
            here.watch = None
            for topic, hear in listening:
                topic.remove(hear)
        known.pop(key, None)
        if (route := self.route(y)) is not None:
            known[key] = route
        return y

    def route(self, y: Any) -> Any:
        """What gives such results from such tensors; None where there is no such thing."""
        result = self.result(y)
        if not self.fits or self.required:
            return None
        return template((*self.lines, f"return {result}"), *self.parameters)(self.constants)

    # ---- what is noted -----------------------------------------------------------------------------------------------------------
    def add(self, call: Any, xs: Sequence[Any], memory: Sequence[Any], y: Any, attributes: dict[str, Any]) -> None:
        """A planned call, told once for each thread that watches."""
        if call.run is None or y is self.last:
            self.fits = self.fits and y is self.last
            return
        numbers = [*memory[: len(xs)], *takewhile(lambda n: isinstance(n, np.generic), memory[len(xs) :])]
        self.launches(memory[len(numbers) :])
        taken = [self.taken(x) for x in xs]
        self.last, ys = y, y if type(y) is tuple else (y,)
        self.required = [b for b in self.required if not any([b is made for made in memory])]
        inputs = [f"{t}.buffer" if isinstance(x, Tensor) else self.constant(n) for t, x, n in zip(taken, xs, numbers, strict=False)]
        inputs += [self.constant(n) for n in numbers[len(xs) :]]
        made, count = self.constant(call), len(self.alive)
        for i, t in enumerate(ys, count):
            self.names[id(t)] = f"t{i}"
            self.buffers.setdefault(id(t.buffer), f"t{i}.buffer")
        self.alive += ys
        self.lines += [f"m = [{', '.join(inputs)}]", *([f"{made}.run(m)"] if call.any_size or call.does else [])]
        results = f"t{count}" if call.single else "".join([f"t{i}, " for i in range(count, len(self.alive))])
        self.lines.append(f"{results} = {made}.finish({made}, ({''.join([f'{t}, ' for t in taken])}), m, {self.constant(attributes)}, 3)")

    def launches(self, made: Sequence[Any]) -> None:
        """Write down what was launched since the last planned call, but for the launches of the one that has ended, which `made` these."""
        called = {self.number_of(b) for b in made if isinstance(b, Buffer)} - {None}
        sides = [(s, s.buffers if isinstance(s, Action) else s.outs) for s in self.steps if not isinstance(s, Action) or s.early]
        own = [s for s, outs in sides if called.isdisjoint([getattr(a, "number", None) for a in outs])]
        self.steps = []
        if own and self.fits:
            groups = [(s.buffers, ()) if isinstance(s, Action) else (s.outs, (*s.ins, *s.consts)) for s in own]
            fresh, read = (dict.fromkeys([a for g in groups for a in g[i] if isinstance(a, Spot | Buffer)]) for i in (0, 1))
            given = [a for a in read if a not in fresh]
            memory = [self.made[a.number][0]() if type(a) is Spot else a for a in (*given, *fresh)]
            names = [self.buffers.get(id(b), "") for b in memory]
            whole = all([type(a) is Spot for a in fresh]) and not any([type(a) is Spot and a.size >= 0 for a in (*given, *fresh)])
            self.fits = whole and "" not in names[: len(given)] and not any(names[len(given) :])
            if self.fits:
                self.own_launches(own, names[: len(given)], {a: Spot(i) for i, a in enumerate((*given, *fresh))}, memory)

    def own_launches(self, steps: list[Any], given: list[str], at: dict[Any, Spot], memory: list[Any]) -> None:
        """These launches as one line: of the buffers they are given, and of new ones. `at`: where in their memory each buffer is."""
        numbers = [a.number for a in [*at][len(given) :]]
        wanted, fresh = {i for i, b in enumerate(memory) if b is not None}, [self.made[n][1:] for n in numbers]
        run = self.constant(self.device.direct.prepare(fresh, [put(s, at) for s in steps], [True] * len(given), wanted))
        self.lines += [f"m = [{', '.join(given)}]", f"{run}(m)", f"{''.join(['_, '] * len(given) + [f'b{n}, ' for n in numbers])} = m"]
        self.buffers |= {id(b): f"b{n}" for b, n in zip(memory[len(given) :], numbers, strict=True) if b is not None}
        self.held += memory

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        super().after(check, *buffers)
        self.steps = plan.without(self.steps, getattr(check, "fault", None))
        found = [self.buffers.get(id(b), "") for b in buffers]
        self.fits = self.fits and isinstance(check, Required | OnArrays)
        if "" in found:
            self.required += buffers
        elif self.fits:
            rule, within = self.constant(check.check), self.constant(check.within)  # type: ignore[attr-defined]
            self.lines.append(f"{self.constant(self.device)}.require({rule}, {', '.join(found)}, within={within})")

    def constant(self, value: Any) -> str:
        if value is None:
            return "None"
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def taken(self, x: Any) -> str:
        """What an input of a planned call is in the route."""
        name = self.names.get(id(x))
        if name is not None or not isinstance(x, Tensor):
            return name or self.constant(x)
        source, b, broken = self.buffers.get(id(x.buffer)), x.buffer, x.broken
        if source is None:  # kept from before, as tables are
            free = b.root is b.stands_for is broken is None and self.number_of(b) is None and b.device is self.device
            self.fits = self.fits and free and not x.spec.tracked
            return self.constant(x)
        self.names[id(x)] = name = f"t{len(self.alive)}"
        self.fits = self.fits and source != "" and not x.spec.tracked
        if self.fits and broken is not None:
            whole = [i for i, t in enumerate(self.alive) if t.buffer is b and t.requires_grad and t.shape == x.shape]
            source, self.fits = f"t{min(whole, default=0)}", broken[0] == "detach" and len(whole) > 0
        self.lines.append(f"{name} = Tensor({source}, {self.constant(x.spec)})" if broken is None else f"{name} = {source}.detach()")
        self.alive.append(x)
        return name

    def result(self, y: Any) -> str:
        """The results as the function gave them."""
        if isinstance(y, tuple | list):
            parts = "".join([f"{self.result(v)}, " for v in y])
            return f"{self.constant(type(y))}({parts})" if hasattr(y, "_fields") else f"[{parts}]" if type(y) is list else f"({parts})"
        if id(y) not in self.names and isinstance(y, Tensor) and id(y.buffer) in self.buffers:
            self.taken(y)
        if isinstance(y, Tensor) and any([y.buffer is b for b in self.uploaded]):
            self.fits, take = self.fits and not y.requires_grad, self.constant(self.device.direct.taker(y.buffer))
            y.buffer = self.device.direct.copied(y.buffer)
            return f"Tensor({take}(), {self.constant(y.spec)})"
        self.fits = self.fits and id(y) in self.names
        return self.names.get(id(y), "")

    def upload(self, array: np.ndarray) -> Buffer:
        """Few numbers, which follow from those in the key as all does, are uploaded once. Who records uploads of a step hears of each."""
        self.fits = self.fits and array.size <= SMALL
        if not self.uploaded:
            self.lines[:0] = [f"if {self.constant(self.device)}.stream is not {self.constant(self.device.direct)}:", "    return None"]
        self.uploaded.append(super().upload(array))
        return self.uploaded[-1]

    # ---- what no route can do ------------------------------------------------------------------------------------------------------
    def download(self, buffer: Buffer) -> np.ndarray:
        self.fits = self.fits and self.checking > 0
        return super().download(buffer)

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        self.fits = self.fits and buffer is not None and self.number_of(buffer) is not None
        super().before(values, buffer)

    def wrote(self, buffer: Buffer) -> None:
        self.fits = False
        super().wrote(buffer)

    def report(self, make: Callable[[np.ndarray], Any], buffer: Buffer) -> Any:
        self.fits = False
        return super().report(make, buffer)


def put(s: Step | Action, at: dict[Any, Spot]) -> Step | Action:
    """The step with each buffer where `at` says."""
    if isinstance(s, Action):
        return s._replace(buffers=[at[b] for b in s.buffers])
    return Step(s.kernel, *[[at[a] if isinstance(a, Spot | Buffer) else a for a in group] for group in s[1:]])


@lru_cache(4096)
def template(lines: tuple[str, ...], *parameters: str) -> Any:
    """What makes a route of its constants, of which the lines have the numbers."""
    text = f"def route({', '.join(parameters)}):\n" + "".join([f"    {line}\n" for line in lines])
    code = compile(text, __file__, "exec")  # under this name, so that a search for the user's line skips it

    def made(constants: list[Any]) -> Any:
        known = {"Tensor": Tensor, "default": lambda: device_of(None), **{f"k{i}": k for i, k in enumerate(constants)}}
        exec(code, known)
        return known["route"]

    return made
