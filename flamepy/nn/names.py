"""Names of parameters: one for what several attributes share, the path that is found first; PyTorch's as ours, most of which are the same:
only attention and its block are built of other layers here."""

from __future__ import annotations

from typing import Any

from ..core.errors import StateError
from ..dtypes import checked_dict
from ..parameter import Parameter
from ..tensors import tensor

ATTENTION = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias", "out_proj.weight": "proj.weight", "out_proj.bias": "proj.bias"}
BLOCK = {
    **{f"self_attn.{theirs}": f"attn.{ours}" for theirs, ours in ATTENTION.items()},
    **{f"linear{i}.{part}": f"mlp.{2 * i - 2}.{part}" for i in (1, 2) for part in ("weight", "bias")},
}


def name_in_passing(owner: Any, attribute: str, value: Any) -> None:
    """Name what is put in by its path from its owner, so that maps of gradients and error texts know it before anyone asks for params.
    What has another name already may be shared: it goes by its first path from here; tied to a layer that knows no other path
    (head.weight = embedding.weight), it keeps its name."""
    listed: dict[int, str] = {}
    for path, p in [("", value)] if isinstance(value, Parameter) else value._named():
        if p.name and not p.passing:
            continue
        name = f"{attribute}.{path}" if path else attribute
        if p.name not in ("", path):
            listed = listed or {q.id: first for first, q in owner._named()}
            name = p.name if listed[p.id] == name and not path and "." in p.name else listed[p.id]
        p.name, p.passing = name, True


def one_name_each(state: dict[str, Any], others: dict[str, str]) -> dict[str, Any]:
    """A state with what is shared under the name that it is listed under alone. Raises StateError where its names have other numbers."""
    found = {name: value for name, value in state.items() if name not in others}
    for name, listed in others.items():
        if name in state and tensor(found.setdefault(listed, state[name])).numpy().tobytes() != tensor(state[name]).numpy().tobytes():
            what = f"one parameter here, two in the state: '{listed}' and '{name}'"
            raise StateError(f"load_state_dict: {what}. Load into a model that does not share it.")
    return found


def from_torch_names(state: dict[str, Any]) -> dict[str, Any]:
    """A state_dict of PyTorch's with our names, values as they are: model.load_state_dict(nn.from_torch_names(theirs.state_dict())).
    Linear, Embedding, convolutions, norms with their running statistics and Sequential have the same names and layouts in both.
    MultiheadAttention's in_proj_weight, in_proj_bias and out_proj become qkv and proj of MultiHeadAttention. TransformerEncoderLayer
    (norm_first=True, activation="gelu", dim_feedforward four times d_model) becomes TransformerBlock: self_attn is attn, linear1 is
    mlp.0, linear2 is mlp.2. Names that are attributes of your own model are left alone."""
    state = checked_dict("from_torch_names", state)
    blocks = {name.removesuffix("self_attn.in_proj_weight") for name in state if name.endswith("self_attn.in_proj_weight")}
    heads = {name.removesuffix("in_proj_weight") for name in state if name.endswith("in_proj_weight")}
    renamed = {prefix + theirs: prefix + ours for prefix in heads for theirs, ours in ATTENTION.items()}
    renamed |= {prefix + theirs: prefix + ours for prefix in blocks for theirs, ours in BLOCK.items()}
    return {renamed.get(name, name): value for name, value in state.items()}


def from_torch(module: Any, theirs: Any, strict: bool = True) -> Any:
    """Load a module of PyTorch's, or its state_dict, into one of flamepy's that is built alike, by names, buffers too; returns `module`.
    Names are brought to ours by from_torch_names() where they are not ours already. Raises StateError, ShapeError as load_state_dict()
    does, and then nothing is loaded; strict=False takes what both have.
        model = nn.from_torch(ours, torchvision.models.resnet18(weights="DEFAULT")).eval()"""
    state = theirs.state_dict() if callable(getattr(theirs, "state_dict", None)) else theirs
    own, state = module.state_dict(), checked_dict("from_torch", state)
    module.load_state_dict(state if all([name in own for name in state]) else from_torch_names(state), strict)
    return module
