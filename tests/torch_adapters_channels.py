"""PyTorch's operator database in flamepy's words: norms by channel. See torch_adapters.py."""

from __future__ import annotations

from typing import Any

from torch_adapters import Row

import flamepy.nn.functional as F


def batch_norm(x: Any, mean: Any = None, var: Any = None, *args: Any, **options: Any) -> Any:
    """The statistics are written: those given are copied first, since a sample is called more than once."""
    return F.batch_norm(x, *[None if t is None else t.detach().clone() for t in (mean, var)], *args, **options)


def instance_norm(x: Any, mean: Any = None, var: Any = None, *args: Any, **options: Any) -> Any:
    for name, t in (("running_mean", mean), ("running_var", var)):
        t = options.get(name, t)
        options[name] = None if t is None else t.detach().clone()
    names = ("weight", "bias", "use_input_stats", "momentum", "eps")
    return F.instance_norm(x, **options, **dict(zip(names, args, strict=False)))


CHANNELS: dict[str, Row] = {
    "nn.functional.batch_norm": Row("batch_norm", batch_norm),
    "nn.functional.instance_norm": Row("instance_norm", instance_norm),
    "nn.functional.group_norm": Row("group_norm", F.group_norm),
    "nn.functional.local_response_norm": Row("local_response_norm", F.local_response_norm),
}
