"""Text: what is read, what is refused and how, and that batches depend on (seed, step) alone."""

import io
import os
import sysconfig
import threading
from pathlib import Path

import numpy as np
import pytest

from flamepy.train import data
from flamepy.train.problems import InputError

TEXT = b"the quick brown fox jumps over the lazy dog\n" * 40


def refused(source, context=8):
    with pytest.raises(InputError) as caught:
        data.load_text(str(source), context)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


def test_standard_library_is_the_sorted_top_level_modules():
    text = data.load_text("stdlib", 64)
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    assert text.content.tobytes() == b"".join(f.read_bytes() for f in files)
    assert len(text.training) == int(0.9 * len(text.content))
    assert len(text.training) + len(text.held_out) == len(text.content)


def test_file_folder_and_standard_input_give_the_same_bytes(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_bytes(TEXT[:500])
    (tmp_path / "sub" / "b.md").write_bytes(TEXT[500:])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / ".hidden").write_bytes(b"secret")
    (tmp_path / "runs" / "gpt-1").mkdir(parents=True)
    for name in ("config.toml", "metrics.jsonl"):
        (tmp_path / "runs" / "gpt-1" / name).write_text("what training writes is not its own data")
    folder = data.load_text(str(tmp_path), 8)
    assert folder.content.tobytes() == TEXT and (folder.files, folder.skipped) == (2, 2)
    whole = tmp_path / "whole.txt"
    whole.write_bytes(TEXT)
    assert data.load_text(str(whole), 8).content.tobytes() == TEXT

    class Pipe:
        buffer = io.BytesIO(TEXT)

    monkeypatch.setattr("sys.stdin", Pipe)
    piped = data.load_text("-", 8)
    assert piped.once and piped.sha256 == folder.sha256
    monkeypatch.setattr("sys.stdin", None)  # flamepy train --data - <&-
    with pytest.raises(InputError, match="the standard input is closed"):
        data.load_text("-", 8)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(TEXT))
    writer.start()
    text = data.load_text(str(pipe), 8)
    writer.join()
    assert text.once and text.content.tobytes() == TEXT


def test_what_is_refused(tmp_path, monkeypatch):
    assert "no such file or folder" in refused(tmp_path / "nope.txt")
    file = tmp_path / "f"
    file.write_bytes(b"")
    assert "empty" in refused(file)
    file.write_bytes(TEXT[:80])
    assert "too short: 80 bytes, context 8 needs at least 81" in refused(file)
    file.write_bytes(TEXT + b"\0" + TEXT)
    assert f"binary (a zero byte at {len(TEXT):,})" in refused(file)
    file.write_bytes("text".encode("utf-16") * 100)
    assert "UTF-16" in refused(file)
    file.write_bytes(bytes(range(1, 256)) * 20)
    assert "control characters" in refused(file)
    file.unlink()
    assert "no text file in the folder" in refused(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"\0")
    assert "holds 1 other file" in refused(tmp_path)
    if os.path.exists("/dev/zero"):
        assert "not a file or folder" in refused("/dev/zero")


def test_shortest_text_that_fits(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(TEXT[:81])
    text = data.load_text(str(file), 8)
    x, y = data.training_batch(text, 0, 0, 4, 8)
    assert x.shape == y.shape == (4, 8)
    assert len(list(data.validation_batches(text, 10, 4, 8))) == 1


def test_unreadable_file(tmp_path, monkeypatch):
    file = tmp_path / "f.txt"
    file.write_bytes(TEXT)

    def denied(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    assert "Permission denied" in refused(file)
    assert "Permission denied" in refused(tmp_path)


def test_latin1_and_any_utf8_are_text():
    assert not data.why_not_text("déjà vu\n".encode("latin-1"))
    assert not data.why_not_text("日本語 😀\r\n\tend\x1b[0m".encode())


def test_batches_depend_on_seed_and_step_only():
    text = data.Text("t", np.frombuffer(TEXT, np.uint8))
    x, y = data.training_batch(text, 7, 3, 6, 16)
    again = data.training_batch(text, 7, 3, 6, 16)
    assert x.dtype == np.int64 and np.array_equal(x, again[0]) and np.array_equal(y, again[1])
    assert np.array_equal(x[:, 1:], y[:, :-1])
    for other in (data.training_batch(text, 8, 3, 6, 16), data.training_batch(text, 7, 4, 6, 16)):
        assert not np.array_equal(x, other[0])
    everything = np.concatenate([data.training_batch(text, 0, s, 64, 16)[0] for s in range(200)])
    starts = {bytes(row.astype(np.uint8)) for row in everything}
    assert len(starts) == 44  # the text repeats every 44 bytes, and every phase of it is drawn


def test_first_and_last_window_are_reached():
    text = data.Text("t", np.arange(200, dtype=np.uint8))
    seen = np.concatenate([data.training_batch(text, 0, s, 64, 10)[0][:, 0] for s in range(100)])
    assert seen.min() == 0 and seen.max() == 180 - 11


def test_validation_windows_are_held_out_and_fixed():
    text = data.Text("t", np.arange(250, dtype=np.uint8))
    batches = list(data.validation_batches(text, 100, 2, 4))
    x = np.concatenate([b[0] for b in batches])
    assert len(x) == 25 // 5 and x.min() == 225 and x[-1, -1] == 248
    assert [len(b[0]) for b in batches] == [2, 2, 1]


def test_tokens():
    text = "naïve 😀"
    assert data.decode(data.encode(text)) == text
    assert data.decode([0x61, 0xFF]) == "a\N{REPLACEMENT CHARACTER}"
