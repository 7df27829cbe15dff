"""What to do where a name is not here that people know from PyTorch or NumPy, or that is misspelt.

An attribute that is missing raises AttributeError, as everywhere; its text says what takes the name's place, or which name is near.
Nothing is accepted that would do less than the name promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .core.errors import FlameError


def spread(rows: dict[str, str]) -> dict[str, str]:
    """A row for each name in the place of one for several."""
    return {name: text for names, text in rows.items() for name in names.split()}


TYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32", "bool": "bool_",
}  # fmt: skip
# What PyTorch has in torch and in Tensor, and flamepy elsewhere: in nn.functional, in linalg, and under another name.
IN_FUNCTIONAL = """adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear channel_shuffle conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss ctc_loss embedding feature_alpha_dropout group_norm gru_cell
    hinge_embedding_loss instance_norm layer_norm lstm_cell margin_ranking_loss max_pool1d max_pool2d max_pool3d pixel_shuffle
    pixel_unshuffle rms_norm triplet_margin_loss"""
IN_LINALG = "cholesky det lstsq matrix_power matrix_rank qr slogdet solve svd"
ELSEWHERE = spread({
    **{name: f"flamepy.linalg.{name}" for name in IN_LINALG.split()},
    "inverse": "flamepy.linalg.inv(x)", "pinverse": "flamepy.linalg.pinv(x)", "symeig": "flamepy.linalg.eigh(x)",
    "logdet": "flamepy.linalg.slogdet(x), which gives the sign, too",
    "triangular_solve": "flamepy.linalg.solve_triangular(a, b, upper=True)",
    "adjoint": "x.mT", "dist": "flamepy.norm(x - y)",
    "take_along_dim": "flamepy.take_along_axis(x, i, axis)",
    "select": "Index it: x[:, 3]", "split_with_sizes": "flamepy.split(x, sizes, axis)", "put": "flamepy.index_put(x, indices, values)",
    "hsplit": "flamepy.tensor_split(x, parts, 1)", "vsplit": "flamepy.tensor_split(x, parts, 0)", "is_nonzero": "bool(x)",
    "index_reduce": "flamepy.scatter_reduce(x, axis, index, src, reduce)", "is_complex conj": "There are no complex tensors",
    "unique_consecutive": "Compare neighbours, x[1:] != x[:-1], or unique(x)", "block_diag": "Pad each with zeros, and cat() them",
    "matrix_exp": "For a symmetric matrix: w, v = flamepy.linalg.eigh(x), then (v * w.exp()) @ v.mT",
})  # fmt: skip
# Functions of PyTorch's that are short in others, on tensors x and y (softplus and the like: methods too). tests/test_advice.py runs each.
WRITTEN_OUT = {
    "equal": "flamepy.array_equal(x, y)", "fmax": "flamepy.where(x.isnan() | (y > x), y, x)",
    "fmin": "flamepy.where(x.isnan() | (y < x), y, x)", "gcd": "numpy.gcd(x.numpy(), y.numpy())", "lcm": "numpy.lcm(x.numpy(), y.numpy())",
    "cartesian_prod": "flamepy.stack([g.reshape(-1) for g in flamepy.meshgrid(x, y, indexing='ij')], -1)",
    "trapezoid": "((x[1:] + x[:-1]) / 2).sum() (for one axis)", "vander": "x[:, None] ** flamepy.arange(x.size - 1, -1, -1)",
    "cov": "(x - x.mean(1, keepdims=True)) @ (x - x.mean(1, keepdims=True)).T / (x.shape[1] - 1)",
    "corrcoef": "(x - x.mean(1, keepdims=True)) @ (x - x.mean(1, keepdims=True)).T / x.shape[1] / flamepy.outer(x.std(1), x.std(1))",
    "is_floating_point": "x.dtype in (flamepy.float32, flamepy.float64, flamepy.bfloat16, flamepy.float16)",
}  # fmt: skip
SHARED = {name: f"nn.functional.{name}(x, y)" for name in ("cosine_similarity", "pairwise_distance", "kl_div", "poisson_nll_loss")}
# A row is one or several names and what to do; "Use" goes before what begins with no capital letter.
ADVICE = {
    "Tensor": {
        **WRITTEN_OUT, **SHARED, **ELSEWHERE,
        "new_empty": "flamepy.zeros(shape, dtype=x.dtype, device=x.device)", "get_device": "x.device", "resize": "x.reshape(shape)",
        "to_sparse to_dense is_sparse": "Tensors are dense", "register_post_accumulate_grad_hook": "register_hook(f)",
        "type astype": ".dtype, or .to(dtype)", "data": ".detach() to read without the tape, set_data() to write into a Parameter",
        "set_data": "Parameters have it, and the buffers of modules (register_buffer), which hold detached tensors",
        "stride": "Every tensor is contiguous",
        "itemsize element_size": "x.dtype.itemsize",
        "nbytes": "x.size * x.dtype.itemsize",
        "new_tensor": "flamepy.tensor(data, dtype=x.dtype, device=x.device)",
        "values indices": "argmax() and argmin() for indices; max() and min() give the values",
        "is_cuda": "x.device",
        "pin_memory share_memory_": "Leave it out: arrays and tensors of this process are at hand",
        "detach_": "x = x.detach()",
    },
    "flamepy": {
        **WRITTEN_OUT, **SHARED, **ELSEWHERE, **{name: f"flamepy.nn.functional.{name}" for name in IN_FUNCTIONAL.split()},
        "clamp_min": "flamepy.clamp(x, min=value)", "clamp_max": "flamepy.clamp(x, max=value)",
        "detach": "x.detach()", "range": "flamepy.arange(start, end)", "scalar_tensor": "flamepy.tensor(value)",
        "randint_like": "flamepy.randint(low, high, x.shape)", "logspace": "10.0 ** flamepy.linspace(start, end, n)",
        "get_default_dtype": "Floats are float32 unless dtype= says otherwise",
        "seed initial_seed": "flamepy.manual_seed(n)",
        "broadcast_shapes promote_types result_type can_cast": "NumPy has it, for shapes and for dtypes",
        "get_num_threads": "numba.get_num_threads()", "gru lstm rnn_tanh rnn_relu": "flamepy.nn.GRU, flamepy.nn.LSTM, flamepy.nn.RNN",
        "frombuffer": "flamepy.tensor(numpy.frombuffer(data, dtype))", "nuclear_norm": "flamepy.linalg.norm(x, 'nuc')",
        "frobenius_norm": "flamepy.norm(x)", "embedding_bag": "flamepy.nn.functional.embedding(ids, w).mean(1)",
        "fill": "flamepy.full_like(x, value)", "constant_pad_nd": "flamepy.nn.functional.pad(x, pads, value=value)",
        "cond while_loop": "Write if and while in Python", "grid_sampler": "flamepy.nn.functional.grid_sample(x, grid)",
        "optim": "Optimizers are flamepy.SGD, flamepy.AdamW and the others in flamepy.optimizers", "compile jit": "flamepy.capture(step)",
        "as_tensor asarray": "flamepy.tensor(data)", "from_numpy": "flamepy.tensor(array)", "Module": "flamepy.nn.Module",
        "set_grad_enabled": "flamepy.no_grad() or flamepy.enable_grad()",
        **{name: f"flamepy.{dtype}" for name, dtype in TYPES.items() if name != dtype},
        "empty": "flamepy.zeros(shape)", "empty_like": "flamepy.zeros_like(x)", "is_tensor": "isinstance(x, flamepy.Tensor)",
        "numel": "x.numel()",
        "set_default_dtype": "Pass dtype= to what makes tensors, or use model.to(dtype)",
        "finfo": "numpy.finfo(x.dtype)", "set_num_threads": "numba.set_num_threads(n)", "set_printoptions": "numpy.set_printoptions()",
        "use_deterministic_algorithms backends": "Leave it out: results have the same bits from run to run",
        "distributions": "flamepy.randn, rand, normal, multinomial and bernoulli draw; log_softmax and nll_loss give logarithms",
        "FloatTensor LongTensor IntTensor BoolTensor": "flamepy.tensor(data, dtype=...)", "Size": "tuple", "dtype": "numpy.dtype",
        "vmap func": "Write the axis of the batch: ops broadcast", "fft complex": "There are no complex tensors",
        "sparse": "Tensors are dense",
        "hub onnx": "nn.from_torch(ours, theirs) takes a model's weights over", "profiler": "flamepy.tape() shows what was recorded",
        "distributed": "Leave it out: one process uses all threads", "amp": "Use flamepy.autocast(flamepy.bfloat16)",
        "lr_scheduler": "flamepy.schedules: lr=schedule",
        "inf": "math.inf", "nan": "math.nan", "pi": "math.pi", "utils": "Batches are slices of an array; see docs/training.md",
        "inference_mode": "flamepy.no_grad()",
    },
    "autograd": {"grad": "grads = y.backward(), then grads[x]", "Function": "flamepy.custom", "gradcheck": "flamepy.gradcheck",
                 "Variable": "flamepy.tensor(data, requires_grad=True)"},
    "init": {},
    "cuda": {
        "is_available device_count current_device": "Ask flamepy.device('cuda'), which raises where there is no GPU",
        "manual_seed manual_seed_all": "flamepy.manual_seed(n), which is for every device",
        "amp": "Set model.compute_dtype = flamepy.bfloat16; flamepy.GradScaler scales losses",
        "synchronize": "Reading a result waits for it", "memory_allocated": "flamepy.device('cuda').memory()",
        "empty_cache": "Leave it out: memory that is free is used again",
        "grid": "Kernels are written with numba.cuda: from numba import cuda", "jit": "Kernels are written with numba.cuda",
    },
    "Module": {
        "type": ".to(dtype)", "compile": "flamepy.capture(step)", "register_module": "Assign it: self.name = module",
        "extra_repr": "Define extra(), which gives the text", "get_submodule": "dict(model.named_modules())[name]",
        "get_parameter": "model.params[name]", "register_backward_hook": "register_hook() of a tensor in a forward hook",
        "register_parameter": "Assign a Parameter: self.w = flamepy.Parameter(...)", "add_module": "Assign it: self.name = module",
        "named_children": ".children()", "flatten_parameters": "Leave it out: kernels read the weights as they lie",
        "register_full_backward_hook": "register_hook() of a tensor in a forward hook",
    },
    "schedules": {
        "StepLR": "step(lr, every, gamma)", "MultiStepLR": "multistep(lr, milestones, gamma)", "ExponentialLR": "exponential(lr, gamma)",
        "LinearLR": "linear(start, end, n) or warmup(lr, n)", "CosineAnnealingLR": "cosine(lr, n, end)",
        "CosineAnnealingWarmRestarts": "cosine_restarts(lr, n, factor, end)", "CyclicLR": "cyclic(low, high, up, down, mode, gamma)",
        "OneCycleLR": "one_cycle(lr, n)", "SequentialLR": "sequence(schedules, milestones)",
        "ReduceLROnPlateau": "Use ReduceOnPlateau(lr, factor, patience)",
        "LambdaLR": "Any function of the step number is a schedule: lr=lambda n: ...",
        "ChainedScheduler scaled": "product(schedule, schedule or number)", "PolynomialLR polynomial": "poly(lr, n, end, power)",
    },
    "schedule": {
        "step": "Give it to the optimizer, lr=schedule, whose step() goes on by one", "get_last_lr": "optimizer.lr",
    },
    "nn.utils": {
        "rnn": "Pass lengths= to nn.LSTM, nn.GRU or nn.RNN, with one array that is as long as the longest row",
        "clip_grad_norm": "clip_grad_norm_", "clip_grad_value": "clip_grad_value_", "prune": "Multiply the weight by a mask: a buffer",
        "parametrize parametrizations": "weight_norm and spectral_norm; or make the weight in forward()",
        "get_total_norm": "flamepy.grad_norm(grads)", "skip_init": "Leave it out: load_state_dict() writes over first numbers",
    },
    "functional": {
        **WRITTEN_OUT,
        "multi_head_attention_forward": "nn.MultiHeadAttention(width, heads, causal=...)",
        "upsample_bilinear": "interpolate(x, size, mode='bilinear', align_corners=True)", "upsample_nearest": "interpolate(x, size)",
        "embedding_bag": "embedding(ids, w).mean(1)",
        **{f"max_pool{n}d_with_indices": f"max_pool{n}d(x, size, return_indices=True)" for n in (1, 2, 3)},
        "gumbel_softmax": "softmax((logits - (-flamepy.rand(*logits.shape).log()).log()) / tau, -1)",
    },
    "nn": {
        "SyncBatchNorm": "nn.BatchNorm2d: one process has the whole batch",
        "ParameterDict ParameterList": "Assign each: self.w = flamepy.Parameter(...)", "Buffer": "self.register_buffer(name, data)",
        "NLLLoss2d": "nn.NLLLoss", "CrossMapLRN2d": "nn.LocalResponseNorm",
        "EmbeddingBag": "nn.Embedding, and .mean(1) of what it gives",
        "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d": "Give the number of inputs",
        "DataParallel DistributedDataParallel": "Leave it out: one process uses all threads",
    },
}  # fmt: skip
ADVICE = {
    owner: {name: text if text[0].isupper() else f"Use {text}" for name, text in spread(rows).items()} for owner, rows in ADVICE.items()
}
IN_PLACE = "add sub mul div pow neg abs exp log sqrt clamp relu sigmoid tanh masked_fill scatter scatter_add index_add index_fill index_put"
WRITTEN = "fill", "zero", "copy", "normal", "uniform", "exponential", "random", "bernoulli", "resize"
ADVICE["Tensor"].update({f"{name}_": f"Tensors are not changed in place: x = x.{name}(...)" for name in IN_PLACE.split()})
ADVICE["Tensor"].update({f"{name}_": "Tensors are not changed in place; set_data() writes into a Parameter or buffer" for name in WRITTEN})


def close_to(name: str, known: list[str]) -> list[str]:
    """The name that was meant. (Not asked for names like __wrapped__: tools ask every object for those, nobody has misspelt them.)"""
    import difflib

    return difflib.get_close_matches(name, known, 1, 0.75)


def missing(owner: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """The error for a name that `owner` (a key of ADVICE) does not have, among those that it has."""
    text = ADVICE[owner].get(name)
    if text is None:
        near = [] if name[:2] == "__" else close_to(name, [n for n in known if n[0] != "_"])
        text = f"Did you mean '{near[0]}'?" if near else "dir() lists what there is"
    return AttributeError(f"{owner}: no such name: '{name}'. {text}{'' if text[-1] in '.?' else '.'}")


def missing_in(owner: str, known: Iterable[str]) -> Callable[[str], object]:
    """A module's __getattr__, which Python calls only for names that are not there."""

    def unknown(name: str) -> object:
        raise missing(owner, name, known)

    return unknown


class NotHere:
    """Stands in a class where such a name would be. (With a __getattr__ every attribute that is there would be slower.)"""

    def __init__(self, owner: str, name: str):
        self.owner, self.name = owner, name

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        raise missing(self.owner, self.name)


class NotData(NotHere):
    """PyTorch's `data`: as an attribute it would take what is assigned, and nothing would come of it."""

    def __set__(self, instance: Any, value: Any) -> None:
        raise FlameError("data: cannot be set: x.data = v. Use set_data(v) of a Parameter, or build a new tensor.")


def advise(kind: type, owner: str) -> None:
    """Put advice into a class for each name of PyTorch's that it does not have."""
    for name in ADVICE[owner]:
        setattr(kind, name, (NotData if name == "data" else NotHere)(owner, name))
