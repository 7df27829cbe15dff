"""capture(): record a whole training step once, plan its memory, replay it without tape, shape checks or allocation.

    replay = flamepy.capture(step)      # of each kind of call the first runs eagerly, the second is recorded, later ones are replayed
    loss, norm = replay(x, y)

The seam is the Stream: while a call is recorded, a Recorder stands in the stream's place and writes down each launch. Buffers made
during the step get places in one arena, by lifetime; parameters, optimizer state and constants stay where they are (they are
held). A replay copies the arguments in, walks a flat list of calls and copies the results out: the same kernels on the same
numbers, so the same bits as eager. What Python decides (shapes, branches, numbers) belongs to the kind of a call: the form of its
arguments (arguments.py), the values it sees from outside (names.py), the settings it reads (guards). What changes from step to step
lives in buffers, which host actions fill.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

from ...backend import base
from ...backend.recorder import divert, recorder_of
from ...backend.run import Spot, Step
from ...bus import here, settings
from ...core import ids
from ...core.op import over
from ...dtypes import check_function, is_count
from ...errors import CaptureError, warn
from ..kept import NUMBERS
from .arguments import Arguments, alike, check_same_results, copy_of, is_tensor, leaves, maker_of, mapped, outline, strip
from .generators import Generators
from .kinds import Kind, same_form
from .names import Names
from .program import Program, check_apart, check_nothing_left, roots
from .reach import look
from .recorder import RECORDED, Later, StepRecorder, hearing
from .verify import Checks, Record, verifying

R = TypeVar("R")  # what the step returns, for type checkers
ROUNDS = 3  # calls of one kind that may each do something else before that is an error


def capture(step: Callable[..., R], programs: int = 8, verify: bool | int = True) -> Captured[R]:
    """A function that does what `step` does. Of each kind of call the first runs eagerly, the second is recorded, the others replay it.

    Calls are of one kind when these are the same: shapes, dtypes, devices of the tensors and arrays among the arguments, whether they
    require grad, which of them share memory; all other arguments; grad mode; numbers, strings, flags, containers and objects in the
    step's closure and in the globals it names, also where its own functions and objects lead to; of every Parameter and Module it
    reaches requires_grad, the mode, attributes. So the last short batch, eval(), freeze(), another max_norm each give the eager result.
    Arguments may be nested in tuples, lists and dicts. Results are Tensors, the ClipResult of clip_grad_norm, None, or tuples, lists and
    dicts of them; a result is a copy that no later call changes, and backward() from it raises.

    `step` may call backward(), clip, set `.grad`, and step optimizers, whose options may be set between calls. State goes in and comes
    out as arguments and results, or lives in Parameters and buffers written by set_data(). Arrays go to the device of the first Tensor.
    What the step does beside computing (print, append, count) is not done in replays; a warning says so.

    verify: how often a record is checked against the step: the step then runs as Python, launching nothing, and each launch is compared
    with the recorded one. A difference raises CaptureError and nothing of that call is done. True: at calls 4, 8, 16 ... of a kind, later
    so often that checks cost less than 1 % of the time; at uneven distances, so that what comes at every tenth call is met, too. So what
    changes unseen (long containers, large arrays, files, clocks, attributes of objects nobody named) is replayed as it was for at most as
    many calls as came before, and at most for as many as take 250 times as long as a check does: some 20 for a small GPT, some ten
    thousand for a tiny MLP; print(captured) shows the number. A number: after so many calls each time. False: never.

    CaptureError: when the step reads numbers on the host, or what cannot be watched (an iterator, a weak reference, open(), globals(),
    another library's tensor); when it draws from Python's or NumPy's random generators; when tensors it made are kept elsewhere, or a
    tensor from outside is another one each time; when a number or data made by Python differ between the two calls; when there are more
    kinds of calls than `programs` (told is what keeps changing); when an argument shares memory with what the step itself holds; when
    memory was moved (pack()) since.
    """
    check_function("capture", "the step", step)
    if not is_count(programs, 1):
        raise ValueError(f"capture: programs must be at least 1: {programs!r}. Allow as many as there are kinds of calls.")
    if not isinstance(verify, bool) and not is_count(verify, 1):
        raise ValueError(f"capture: verify must be True, False, or after how many calls to check: {verify!r}. Use True.")
    return Captured(step, programs, verify)


class Captured(Generic[R]):
    """See capture(). `program`: the last one used, None until a call was recorded; print(captured) shows what was recorded."""

    def __init__(self, step: Callable[..., R], programs: int, verify: bool | int):
        self.step, self.most, self.verify = step, programs, verify
        self.name = getattr(step, "__name__", "step")
        self.kinds: dict[tuple, list[Kind]] = {}  # by form
        self.usual: Kind | None = None  # of the last replay
        self.changed: Counter[str] = Counter()  # how often the step itself changed what it sees
        self.program: Program | None = None
        self.told = False  # that replays do not count
        self.lock = threading.Lock()

    def __call__(self, *args: Any, **options: Any) -> R:
        if RECORDED and here.step:
            raise CaptureError("capture: a step is being recorded: captured steps do not nest. Call the plain function inside.")
        with self.lock:
            kind = self.usual
            if kind is not None and not options and kind.checks.left > 1:
                roots = alike(args, kind.form)
                still = kind.settings == settings.version and not kind.live  # as holds() would find
                if roots is not None and kind.names.as_before() and (still or kind.holds()):
                    kind.checks.left -= 1
                    self.program = program = kind.program
                    program.run(args, roots)  # type: ignore[union-attr]
                    return kind.make()  # type: ignore[no-any-return]
            given = Arguments(args, options)
            kind = self.kind_of(given)
            try:
                return self.eager(given) if kind is None else (self.record if kind.program is None else self.replay)(kind, given)
            except KeyboardInterrupt as stop:
                if here.step or any(map(recorder_of, base.opened())):  # it struck just before the end of a with: frames let go end theirs
                    stop.with_traceback(None)
                    gc.collect()
                raise

    def kind_of(self, given: Arguments) -> Kind | None:
        """The kind of a call; None for a new one."""
        kinds = self.kinds.get(given.form)
        if not kinds and self.kinds:
            kinds = self.kinds_of_old(given.form)
        if not kinds:
            return None
        if kinds[0].names.as_before() and kinds[0].holds():  # the one used last
            return kinds[0]
        found = next((kind for kind in kinds[1:] if kind.names.as_before() and kind.holds()), None)
        if found is None:
            now = look(self.step, given.others)
            found = next((kind for kind in kinds if kind.sees(now) and kind.holds()), None)
        if found is not None:
            kinds.remove(found)
            kinds.insert(0, found)
        return found

    def kinds_of_old(self, form: tuple) -> list[Kind] | None:
        """The kinds of a form that says the same with specs that were forgotten since; from now on they have this one."""
        old = next((known for known in self.kinds if same_form(known, form)), None)
        if old is None:
            return None
        kinds = self.kinds[form] = self.kinds.pop(old)
        for kind in kinds:
            kind.form = form
        return kinds

    # ---- the three ways to call --------------------------------------------------------------------------------------------------
    def eager(self, given: Arguments) -> R:
        """The first call of a kind: only take down what was launched."""
        names = look(self.step, given.others)
        self.check_count(given, names, [kind for found in self.kinds.values() for kind in found])
        kind = Kind(given.form, names)
        with recording(planned=False, began=ids.next_id(), given=[t.buffer for t in given.tensors]) as recorders:
            args, options = given.given()
            result = self.step(*args, **options)
            recorder = used(recorders, names)
        kind.trace, kind.result = recorder.trace, mapped(outline, result)
        kind.keep_guards(recorder.guards.values())
        self.changed.update(names.differing(look(self.step, given.others)))
        self.kinds.setdefault(given.form, []).append(kind)
        return result

    def check_count(self, given: Arguments, names: Names, kinds: list[Kind]) -> None:
        """Raise CaptureError if there are more kinds of calls than allowed, or a step that changes what it sees at every call."""
        again = [label for label, count in self.changed.items() if count > 1]
        if len(kinds) < self.most and not again:
            return
        last = kinds[-1]
        what = again or last.names.differing(names)
        shown = ", ".join([f"{label} (from {last.names.values.get(label)} to {names.values.get(label)})" for label in what[:3]])
        if not what and last.form != given.form:
            shown = f"the arguments (from {last.form[1:]} to {given.form[1:]})"
        shown = shown or ", ".join(last.settings_changed()[:3])
        by = "the step itself changes" if again else f"more than {self.most} kinds of calls of {self.name}, what keeps changing is"
        raise CaptureError(
            f"capture: {by}: {shown or 'a mode'}. "
            "Pass what changes as a tensor and return what the step changes, keep it out of the step, or allow more with "
            "capture(step, programs=n)."
        )

    def record(self, kind: Kind, given: Arguments) -> R:
        """The second call: run and recorded. An error leaves no program, so the next call records; what the step wrote stays written."""
        check_apart(self.name, {id(t.buffer.root or t.buffer) for t in kind.names.tensors}, given.tensors, given.roots)
        began = ids.next_id()
        args, options, memory = given.own(copy_of)
        generators = Generators(kind.names.generators)
        with recording(planned=True, began=began, given=memory) as recorders:
            result = self.step(*args, **options)
            recorder = used(recorders, kind.names)
        check_apart(self.name, {id(b) for b in roots(recorder.steps)}, given.tensors, given.roots)
        found = [x for x in leaves(result) if isinstance(x, Later) or is_tensor(x)]
        stripped = mapped(strip, result)
        values = [copy_of(x.buffer) for x in found]
        outputs = [recorder.place(x.buffer) for x in found]
        alike = self.agrees(kind, recorder, stripped, look(self.step, given.others))
        generators.check(self.name)
        self.check_watched(kind.names)
        del found, result, args, options
        sets = attributes_set(recorder, outputs)
        memory.clear()
        check_nothing_left(recorder)
        if alike:
            program = Program(recorder, outputs, sets, self.name)
            self.program = kind.program = program
            kind.record = Record(program, recorder.steps, recorder.wheres, recorder.digests, outputs, sets, stripped)
            kind.checks = Checks(self.verify)
            kind.trace, kind.result = None, None
            kind.make = maker_of(stripped, iter(program.results))
            program.device.trim()
            self.tell_written(kind.names.written)
        return maker_of(stripped, iter(values))()  # type: ignore[no-any-return]

    def check_watched(self, names: Names) -> None:
        """Raise CaptureError for what the step reads and nobody can watch."""
        for label, what, where in names.unwatched:
            raise CaptureError(
                f"capture: {self.name} reads what cannot be watched: {label} ({what}) at {where}. A replay would not see it change: read "
                "it outside and pass the number or tensor as an argument."
            )

    def tell_written(self, written: dict[str, str]) -> None:
        """Warn, once, of what replays will not do."""
        if written and not self.told:
            self.told = True
            what, where = next(iter(written.items()))
            text = "Replays run no Python: count outside, or return a tensor to be looked at after the call"
            warn(f"capture: {self.name} also adds to {what} at {where}, in its first two calls and where its record is checked. {text}.")

    def agrees(self, kind: Kind, recorder: StepRecorder, stripped: Any, after: Names) -> bool:
        """Whether a recorded call did what the one before did; if not, it is what the next one is compared with. Raises CaptureError for
        what a replay would get wrong."""
        changes = kind.names.differing(after) or kind.settings_changed()
        if changes:
            raise CaptureError(
                f"capture: the step itself changes what it depends on: {', '.join(changes)}. A replay would not: change it outside, or, "
                "where it is numbers that the step carries on, write them in place: x.set_data(value), of a buffer made by "
                "register_buffer(name, data) or of a Parameter(data, requires_grad=False)."
            )
        known_before = {(id(g.owner), g.what) for g, _, _ in kind.guards}
        same = recorder.guards.keys() <= known_before and check_same_results(kind.result, stripped)
        if kind.trace is not None and recorder.trace.agrees(kind.trace) and same:
            return True
        kind.rounds += 1
        if kind.rounds == ROUNDS:
            raise CaptureError(
                f"capture: {self.name} does something else at every call: {len(recorder.trace.keys)} steps now. "
                "What it does may depend on its arguments and on numbers in its closure and globals alone."
            )
        kind.trace, kind.result = recorder.trace, stripped
        kind.keep_guards(recorder.guards.values())
        return False

    def replay(self, kind: Kind, given: Arguments) -> R:
        """The calls after the second: copy the arguments in, run, copy the results out. Now and then the record is checked before."""
        program: Any = kind.program
        if kind.checks.left > 1:
            kind.checks.left -= 1
        else:
            self.check(kind, given)
        program.run(given.tensors, given.roots)
        self.usual, self.program = kind, program
        return kind.make()  # type: ignore[no-any-return]

    def check(self, kind: Kind, given: Arguments) -> None:
        """Run the step again, launching nothing. Raises CaptureError if it does something else than its record; then nothing of this
        call was done, and the next call is checked as well."""
        kind.program.check()  # type: ignore[union-attr]
        began = time.perf_counter()
        with verifying(self.name, kind.record, ids.next_id(), kind.names.generators) as verifier:
            args, options, memory = given.own(lambda b: verifier.somewhere(b.size, b.dtype))
            for buffer in memory:
                verifier.adopt(buffer)
            result = self.step(*args, **options)
            verifier.compare_end([x.buffer for x in leaves(result) if isinstance(x, Later) or is_tensor(x)], mapped(strip, result))
            del args, options, result
            memory.clear()
        kind.checks.again(began)

    def __reduce__(self) -> Any:
        raise CaptureError(f"pickle: a captured step cannot be copied: {self.name}. Pickle the function, and capture it where it is used.")

    def __repr__(self) -> str:
        told = [f"{kind.program!r}, {kind.checks!r}" for found in self.kinds.values() for kind in found if kind.program is not None]
        return f"captured {self.name}: {'; '.join(told) or ('the next call will be recorded' if self.kinds else 'not called yet')}"


@contextmanager
def recording(planned: bool, began: int, given: list[base.Buffer]) -> Iterator[list[StepRecorder]]:
    """Record what this thread does on any device; `began`: from which id on tensors are the step's own, `given`: the memory of the
    arguments. Raises CaptureError for a device that nobody has registered."""
    with ExitStack() as stack:
        for strange in {b.device.name for b in given if b.device not in base.opened()}:
            raise CaptureError(f"capture: nobody knows this device: {strange}. Give it to flamepy.backend.base.register() first.")
        found = [stack.enter_context(divert(d, StepRecorder(planned, began))) for d in base.opened()]
        for buffer in given:
            next(r for r in found if r.device is buffer.device).adopt(buffer)
        stack.enter_context(hearing(found, began))
        NUMBERS.clear()  # so that recorders hear of each
        yield found


def used(recorders: list[StepRecorder], seen: Names) -> StepRecorder:
    """The recorder of the device that the step ran on, which is told of the modules and tensors seen from outside. Raises CaptureError
    if there are two devices."""
    busy = [r for r in recorders if any([isinstance(s, Step) for s in r.steps])]
    busy = busy or [r for r in recorders if r.inputs] or recorders[:1]
    if len(busy) > 1 or any([r.inputs and r is not busy[0] for r in recorders]):
        names = ", ".join([r.device.name for r in recorders if r in busy or r.inputs])
        raise CaptureError(f"capture: the step runs on two devices: {names}. Put the model and its inputs on one of them.")
    for owner in (*seen.modules, *seen.tensors):
        busy[0].seen(owner)
    return busy[0]


def attributes_set(recorder: StepRecorder, outputs: list[Any]) -> list[tuple[int, Any, str, Any]]:
    """What a replay must set (see Program), with the places of what was made by the step added to `outputs`. What stands there now
    becomes a copy, as after a replay."""
    found = []
    for n, owner, attribute in recorder.sets.values():
        value = getattr(owner, attribute)
        if value is not None and type(place := recorder.place(value.buffer)) is Spot:
            setattr(owner, attribute, over(copy_of(value.buffer), value.shape))
            value = len(outputs), strip(value.detach()).like
            outputs.append(place)
        found.append((n, owner, attribute, value))
    return found
