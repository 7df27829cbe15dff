"""What a flow of flamepy enters, counted: calls of its Python functions, files, climbs to a higher floor, depth. `python flow_tools.py`
prints the counts of all flows as JSON: each process is new, so that no test before has planned anything."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


class Count(NamedTuple):
    calls: int
    files: int
    climbs: int
    depth: int


def floor_of(file: str, floors: dict[str, int]) -> int:
    """The place of a file in LAYERS; the package's own files stand above all."""
    return floors.get(Path(file).relative_to(ROOT / "flamepy").parts[0].removesuffix(".py"), len(floors))


def count(action: Callable[[], Any], floors: dict[str, int]) -> Count:
    """One run of `action`. Generators that go on count as calls; C functions and other packages' do not, and add no depth."""
    home = str(ROOT / "flamepy") + "/"
    calls = climbs = deepest = 0
    files: set[str] = set()
    stack: list[tuple[Any, int]] = []  # of flamepy's frames: each, and its floor

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls, climbs, deepest
        file = frame.f_code.co_filename
        if not file.startswith(home):
            return
        if event == "call":
            floor = floor_of(file, floors)
            calls += 1
            files.add(file)
            climbs += bool(stack) and floor > stack[-1][1]
            stack.append((frame, floor))
            deepest = max(deepest, len(stack))
        elif event == "return" and stack and stack[-1][0] is frame:
            stack.pop()

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return Count(calls, len(files), climbs, deepest)


def flows(device: str = "plain") -> dict[str, Count]:
    from test_layers import LAYERS

    import flamepy as fp
    import flamepy.nn.functional as F

    floors = {name: i for i, name in enumerate(LAYERS)}
    found: dict[str, Count] = {}
    x = fp.tensor([[0.5, -1.0, 2.0]] * 4, dtype=fp.float32, device=device, requires_grad=True)
    w = fp.tensor([[0.1, 0.2, 0.3]] * 2, dtype=fp.float32, device=device, requires_grad=True)
    b = fp.tensor([0.1, 0.2], dtype=fp.float32, device=device, requires_grad=True)

    def several(name: str, make: Callable[[], Callable[[], Any]]) -> None:
        """The first run, and one that comes after others."""
        found[f"{name}, first"] = count(make(), floors)
        for _ in range(5):
            make()()
        found[f"{name}, hot"] = count(make(), floors)

    several("tanh", lambda: x.tanh)
    several("backward of tanh, sum", lambda: x.tanh().sum().backward)
    several("linear", lambda: lambda: F.linear(x, w, b))
    params = fp.ParameterDict({"w": fp.Parameter(w.detach()), "b": fp.Parameter(b.detach())})
    optimizer = fp.AdamW(params, lr=1e-3)

    def step(x: Any) -> Any:
        loss = F.linear(x, params["w"], params["b"]).square().mean()
        grads = loss.backward()
        fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        return loss

    replay, given = fp.capture(step), x.detach()
    for name in ("call 1", "call 2", "a replay before", "replay"):
        found[f"captured clip and AdamW, {name}"] = count(lambda: replay(given), floors)
    del found["captured clip and AdamW, a replay before"]
    return found


if __name__ == "__main__":
    print(json.dumps(flows(*sys.argv[1:])))
