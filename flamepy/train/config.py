"""What a run is made of: every setting with its default, its limits and one line of help.

This is the only list of settings. The command line builds its options from it, `--config FILE.toml` is checked against it,
and a run folder's `config.toml` is written from it. Who wins: command line > --config > --preset > the defaults here.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from ..backend.base import BACKENDS
from .files import native, portable
from .problems import InputError, meant


def setting(default: Any, text: str, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """One setting. `low`, `high`: inclusive limits. `section`: it is an option on the command line, too; where in --help.
    `free=True`: may change when a run is resumed, because it changes no number that was already computed."""
    return dataclasses.field(default=default, metadata={"help": text, "low": low, "high": high, **more})


SPELLINGS = {"bf16": "bfloat16", "f16": "float16", "fp16": "float16", "half": "float16", "f32": "float32", "fp32": "float32",
             "f64": "float64", "fp64": "float64"}  # fmt: skip


def spelled(word: str) -> str:
    """A choice or a type of numbers as flamepy writes it: without capitals; bf16 is bfloat16."""
    return SPELLINGS.get(word.lower(), word.lower())


WARMUP = 100
STEPS = "Training steps. The learning rate's curve is as long; --resume with other --steps stretches or shortens it."
LAST_SEED = 2**63 - 1


@dataclass(frozen=True)
class LoopConfig:
    """The settings of the training loop, whatever it trains."""

    steps: int = setting(1000, "training steps", 1, 10**9, section="Training", free=True)
    accumulate: int = setting(1, "Batches in each step: their gradients are added up, as if they were one large batch.", 1, 10**6,
                              section="Training")  # fmt: skip
    capture: bool = setting(True, "Record a step once and replay it: the same bits, faster.", section="Training", free=True)
    ledger: bool = setting(False, "Note each parameter's gradient and update, in ledger.jsonl and ledger.png.",
                           section="Training", free=True)  # fmt: skip
    ledger_every: int = setting(10, "steps between two lines of the ledger; a spike has a line of its own", 1, 10**9, free=True)
    clip: float = setting(1.0, "largest gradient norm; 0 turns clipping off", 0, 1e9)
    validate_every: int = setting(500, "steps between validations", 1, 10**9)
    patience: int = setting(0, "stop after this many validations without a lower loss, and keep the best checkpoint; 0: never", 0, 10**9,
                            free=True)  # fmt: skip
    save_every: int = setting(250, "steps between checkpoints", 1, 10**9, free=True)
    keep: int = setting(2, "checkpoints to keep", 1, 10**6, free=True)


@dataclass(frozen=True)
class TrainConfig(LoopConfig):
    """The settings that every job of `flamepy train` has."""

    data: str = setting("", "What to learn from.", section="Data", free=True)
    steps: int = setting(2000, STEPS, 1, 10**9, section="Training", free=True)
    batch: int = setting(12, "Examples in a batch.", 1, 10**6, section="Training")
    lr: float = setting(1e-3, "Highest learning rate; it warms up to this and then falls to a tenth of it.", 0, 1e6, section="Training")
    seed: int = setting(1337, "Where random numbers start; the same seed gives the same run, bit for bit.", 0, LAST_SEED,
                        section="Training")  # fmt: skip
    device: str = setting("cpu", f"Where to train: {', '.join(BACKENDS)}.", section="Training", free=True)
    compute: str = setting("float32", "Type of the numbers that enter products: bfloat16 (bf16) and float16 (fp16) are faster on some "
                           "machines. Parameters stay float32.",
                           section="Training", choices=("float32", "bfloat16", "float16"))  # fmt: skip
    warmup: int = setting(WARMUP, "steps in which the learning rate rises to lr (when not given: 100, or a tenth of fewer steps)", 0, 10**9)
    final_lr: float = setting(0.1, "learning rate at the end, as a fraction of lr", 0, 1)
    beta1: float = setting(0.9, "AdamW: how much of the average gradient each step keeps", 0, 0.999999)
    beta2: float = setting(0.99, "AdamW: how much of the average squared gradient each step keeps", 0, 0.999999)
    weight_decay: float = setting(0.1, "AdamW: how strongly weights are pulled towards zero", 0, 1e6)

    @property
    def compute_dtype(self) -> str | None:
        """What the model's attribute of this name is set to."""
        return None if self.compute == "float32" else self.compute


@dataclass(frozen=True)
class GptConfig(TrainConfig):
    """`flamepy train`: a byte-level GPT."""

    data: str = setting("stdlib", "Text to learn from: a file, a folder of text files, or - for standard input. "
                        "Default: the Python standard library.", section="Data", free=True)  # fmt: skip
    context: int = setting(64, "Bytes the model sees at once.", 1, 10**6, section="Model")
    layers: int = setting(4, "Transformer blocks.", 1, 10**4, section="Model")
    heads: int = setting(4, "Attention heads per block; must divide the width.", 1, 10**5, section="Model")
    width: int = setting(128, "Size of the vector that stands for one byte.", 1, 10**6, section="Model")
    dropout: float = setting(0.0, "share of the activations that is dropped while training", 0, 0.999)
    validation_batches: int = setting(100, "batches in one validation", 1, 10**6)
    sample_tokens: int = setting(400, "bytes of text to generate at the end", 0, 10**6)

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise InputError(
                f"width must be divisible by heads: width {self.width}, heads {self.heads}. "
                f"Choose for example --width {-(-self.width // self.heads) * self.heads}."
            )


@dataclass(frozen=True)
class DigitsConfig(TrainConfig):
    """`flamepy train digits`: handwritten digits."""

    data: str = setting("digits", "Images to learn from: a folder of MNIST idx files (.gz too) or an .npz with x_train, "
                        "y_train, x_test, y_test. Default: the 1,797 digits of scikit-learn.", section="Data",
                        free=True)  # fmt: skip
    model: str = setting("both", "mlp, cnn or both, one after the other.", section="Model", choices=("mlp", "cnn", "both"))
    width: int = setting(128, "Hidden units of the MLP; the CNN has a quarter and half as many channels.", 4, 10**5, section="Model")
    steps: int = setting(1000, STEPS, 1, 10**9, section="Training", free=True)
    batch: int = setting(64, "Images in a batch.", 1, 10**6, section="Training")
    lr: float = setting(3e-3, "Highest learning rate; it warms up to this and then falls to a tenth of it.", 0, 1e6, section="Training")
    shift: int = setting(1, "the CNN's training images are moved at random by up to this many pixels; the MLP's are not", 0, 100)


# --preset NAME: what differs from the defaults above. Times are for two cores of a recent laptop.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "GptConfig": {
        # A minute at most, to see everything work once: words, indentation, no sense yet.
        "tiny": {"layers": 2, "heads": 2, "width": 64, "context": 32, "steps": 500},
        # The defaults: 0.8 million parameters, one or two minutes.
        "default": {},
        # 10.8 million parameters, about an hour: text that looks like Python at a glance.
        "large": {"layers": 6, "heads": 6, "width": 384, "context": 256, "batch": 4, "steps": 8000, "dropout": 0.1},
    },
    "DigitsConfig": {
        "default": {},
        # MNIST's 60,000 images of 28 x 28 pixels, with --data FOLDER.
        "mnist": {"batch": 128, "steps": 3000, "lr": 2e-3, "shift": 2},
    },
}
Config = TypeVar("Config", bound=LoopConfig)


def settings(kind: type[LoopConfig]) -> dict[str, dataclasses.Field]:
    """Name -> field, in the order a reader expects: data, model, training, then what only a config file can set."""
    order = ("Data", "Model", "Training", None)
    fields = sorted(dataclasses.fields(kind), key=lambda f: order.index(f.metadata.get("section")))
    return {field.name: field for field in fields}


def resolve(kind: type[Config], given: dict[str, Any], file: Path | None = None, preset: str | None = None) -> Config:
    """The configuration from all four places; `given` holds what the command line says."""
    values: dict[str, Any] = {}
    if preset is not None:
        values.update(find_preset(kind, preset))
    if file is not None:
        values.update(read_toml(kind, file))
    values.update(given)
    steps = values.get("steps", settings(kind)["steps"].default)
    if "warmup" not in values and isinstance(steps, int):
        values["warmup"] = min(WARMUP, steps // 10)
    return build(kind, values)


def build(kind: type[Config], values: dict[str, Any]) -> Config:
    """Check every value and make the configuration."""
    hints = get_type_hints(kind)
    checked = {name: check(settings(kind)[name], hints[name], value) for name, value in values.items()}
    config = kind(**checked)
    if isinstance(config, TrainConfig) and config.warmup > config.steps:
        found = f"warmup {config.warmup}, steps {config.steps}"
        raise InputError(f"warmup is longer than the run: {found}. Give --steps {config.warmup} or more.")
    return config


def check(field: dataclasses.Field, wanted: Any, value: Any) -> Any:
    """`value` as the setting's type, inside its limits; InputError otherwise."""
    name, limits = field.name, field.metadata
    if wanted is float and type(value) is int and abs(value) < 2**1000:
        value = float(value)
    if type(value) is not wanted:
        what = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[wanted]
        raise InputError(f"{name} must be {what}: {value!r}. Change {name}.")
    if limits.get("choices"):
        if spelled(value) not in limits["choices"]:
            raise InputError(f"{name} must be one of {', '.join(limits['choices'])}: {value!r}. Change {name}.")
        value = spelled(value)
    if wanted in (int, float):
        within(name, value, limits["low"], limits["high"])
    return value


def within(name: str, value: float, low: float, high: float) -> None:
    """InputError unless `value` is a number between the limits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} must be a finite number: {value}. Change {name}.")
    for limit, fits, word in ((low, operator.ge, "at least"), (high, operator.le, "at most")):
        if not fits(value, limit):
            raise InputError(f"{name} must be {word} {limit:,}: {value}. Change {name}.")


def find_preset(kind: type[LoopConfig], name: str) -> dict[str, Any]:
    choices = PRESETS[kind.__name__]
    if name not in choices:
        raise InputError(f"no such preset: {name!r}. {meant(name, choices)}")
    return choices[name]


def read_table(file: Path) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the config file: {file}: {error.strerror}. Check the path.") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of thousands of digits, brackets without end
        raise InputError(f"not a TOML file: {file}: {one_line(error)}. Write lines like `width = 128`.") from error


def read_toml(kind: type[LoopConfig], file: Path) -> dict[str, Any]:
    """The settings in a TOML file; unknown keys are refused."""
    table = read_table(file)
    job = table.pop("job", job_name(kind))
    if job != job_name(kind):
        advice = "Go on with the program that began the run" if job == "trainer" else f"Use flamepy train {job}"
        raise InputError(f"the config file is for another job: {file}: job is {job!r}. {advice}.")
    known = settings(kind)
    for key in table:
        if key not in known:
            raise InputError(f"no such setting: {key!r} in {file}. {meant(key, known)}")
    return {key: native(value) if isinstance(value, str) else value for key, value in table.items()}


def job_name(kind: type[LoopConfig]) -> str:
    return kind.__name__.removesuffix("Config").lower()


def source_title(source: str) -> str:
    """What --data names, for people."""
    return {"stdlib": "Python standard library", "-": "standard input", "digits": "scikit-learn's digits"}.get(source, source)


def to_toml(config: LoopConfig) -> str:
    """The configuration as TOML with one comment a line; `--config` takes it back."""
    lines = [f'job = "{job_name(type(config))}"']
    for name, field in settings(type(config)).items():
        lines.append(f"{name} = {toml_value(getattr(config, name))}".ljust(32) + f"  # {field.metadata['help']}")
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    if isinstance(value, str):
        escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in portable(value))
        return f'"{escaped}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def one_line(error: BaseException) -> str:
    """An error's text on one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")
