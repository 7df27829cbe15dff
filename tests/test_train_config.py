"""Settings: who wins, what is refused and how, and that config.toml comes back as it went."""

import tomllib

import pytest

from flamepy.command import cli
from flamepy.train.config import PRESETS, DigitsConfig, GptConfig, build, read_toml, resolve, settings, to_toml
from flamepy.train.problems import InputError


def test_command_line_beats_file_beats_preset_beats_default(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("width = 96\nheads = 3\n")
    config = resolve(GptConfig, {"heads": 6}, file, "tiny")
    assert (config.heads, config.width, config.layers, config.batch) == (6, 96, 2, 12)


def test_defaults_are_the_stated_recipe():
    c = resolve(GptConfig, {})
    assert (c.layers, c.heads, c.width, c.context, c.batch, c.steps) == (4, 4, 128, 64, 12, 2000)
    assert (c.beta1, c.beta2, c.weight_decay, c.clip, c.warmup, c.dropout) == (0.9, 0.99, 0.1, 1.0, 100, 0.0)
    assert c.lr == 1e-3 and c.lr * c.final_lr == pytest.approx(1e-4)


def test_warmup_is_at_most_a_tenth_unless_given():
    assert resolve(GptConfig, {"steps": 20}).warmup == 2
    assert resolve(GptConfig, {"steps": 20, "warmup": 15}).warmup == 15


@pytest.mark.parametrize(
    ("written", "meant"),
    [("bf16", "bfloat16"), ("BF16", "bfloat16"), ("bfloat16", "bfloat16"), ("f16", "float16"), ("fp16", "float16"), ("Half", "float16"),
     ("float16", "float16"), ("f32", "float32"), ("FP32", "float32"), ("float32", "float32")],
)  # fmt: skip
def test_types_have_short_names_in_files_and_on_the_command_line(written, meant, tmp_path, monkeypatch):
    (tmp_path / "c.toml").write_text(f'compute = "{written}"\n')
    assert resolve(GptConfig, {}, tmp_path / "c.toml").compute == meant
    started = []
    monkeypatch.setattr("flamepy.train.jobs.start", lambda name, config, *more: started.append(config.compute))
    assert cli.run(["train", "--compute", written]) == 0 and started == [meant]
    for other in ("fp64", "int8", "bf17"):
        with pytest.raises(InputError, match=f"compute must be one of float32, bfloat16, float16: '{other}'"):
            resolve(GptConfig, {"compute": other})


@pytest.mark.parametrize("kind", [GptConfig, DigitsConfig])
def test_every_preset_is_valid(kind):
    for name in PRESETS[kind.__name__]:
        resolve(kind, {}, preset=name)


@pytest.mark.parametrize("kind", [GptConfig, DigitsConfig])
def test_toml_round_trip(kind, tmp_path):
    config = resolve(kind, {"data": 'a "quoted"\\path\nwith Ünicode', "lr": 1.5e-7, "seed": 2**62})
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    assert build(kind, read_toml(kind, file)) == config
    assert set(tomllib.loads(to_toml(config))) == {"job", *settings(kind)}


@pytest.mark.parametrize(
    "given, words",
    [
        ({"width": 100, "heads": 3}, ["width 100", "heads 3", "--width 102"]),
        ({"batch": 0}, ["batch", "at least 1", "0"]),
        ({"context": 0}, ["context", "at least 1"]),
        ({"layers": -1}, ["layers", "-1"]),
        ({"lr": float("nan")}, ["lr", "finite", "nan"]),
        ({"lr": float("inf")}, ["lr", "finite"]),
        ({"lr": -1.0}, ["lr", "at least 0"]),
        ({"steps": 10, "warmup": 11}, ["warmup 11", "steps 10"]),
        ({"width": 2.5}, ["width", "whole number", "2.5"]),
        ({"width": True}, ["width", "whole number"]),
        ({"data": 3}, ["data", "text"]),
        ({"dropout": 1.0}, ["dropout", "at most"]),
    ],
)
def test_impossible_values(given, words):
    with pytest.raises(InputError) as caught:
        resolve(GptConfig, given)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text and text.endswith(".")


@pytest.mark.parametrize(
    "content, words",
    [
        ("widht = 3", ["no such setting: 'widht'", "Did you mean width?"]),
        ("zzz = 3", ["no such setting: 'zzz'", "Use data, context, "]),
        ("[model]\nwidth = 3", ["model"]),
        ("width = ", ["not a TOML file"]),
        ('job = "digits"', ["digits", "flamepy train digits"]),
    ],
)
def test_bad_config_file(content, words, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        resolve(GptConfig, {}, file)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_missing_config_file_and_preset(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the config file: .*nope.toml: No such file"):
        resolve(GptConfig, {}, tmp_path / "nope.toml")
    with pytest.raises(InputError, match=r"no such preset: 'huge'. Use tiny, default, large\."):
        resolve(GptConfig, {}, preset="huge")
