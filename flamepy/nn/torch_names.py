"""PyTorch's names of parameters as ours. Most are the same: only attention and its block are built of other layers here."""

from __future__ import annotations

from typing import Any

from ..dtypes import checked_dict

ATTENTION = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias", "out_proj.weight": "proj.weight", "out_proj.bias": "proj.bias"}
BLOCK = {
    **{f"self_attn.{theirs}": f"attn.{ours}" for theirs, ours in ATTENTION.items()},
    **{f"linear{i}.{part}": f"mlp.{2 * i - 2}.{part}" for i in (1, 2) for part in ("weight", "bias")},
}


def from_torch_names(state: dict[str, Any]) -> dict[str, Any]:
    """A state_dict of PyTorch's with our names, values as they are: model.load_state_dict(nn.from_torch_names(theirs.state_dict())).

    Linear, Embedding, Conv2d, LayerNorm, RMSNorm and Sequential have the same names and layouts in both. MultiheadAttention's
    in_proj_weight, in_proj_bias and out_proj become qkv and proj of MultiHeadAttention. TransformerEncoderLayer (norm_first=True,
    activation="gelu", dim_feedforward four times d_model) becomes TransformerBlock: self_attn is attn, linear1 is mlp.0, linear2 is
    mlp.2. Names that are attributes of your own model are left alone.
    """
    state = checked_dict("from_torch_names", state)
    blocks = {name.removesuffix("self_attn.in_proj_weight") for name in state if name.endswith("self_attn.in_proj_weight")}
    heads = {name.removesuffix("in_proj_weight") for name in state if name.endswith("in_proj_weight")}
    renamed = {prefix + theirs: prefix + ours for prefix in heads for theirs, ours in ATTENTION.items()}
    renamed |= {prefix + theirs: prefix + ours for prefix in blocks for theirs, ours in BLOCK.items()}
    return {renamed.get(name, name): value for name, value in state.items()}
