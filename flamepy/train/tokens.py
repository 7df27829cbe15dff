"""Text to class ids and back. A token is one byte, so there is nothing to learn and no text that cannot be written."""

from __future__ import annotations

import codecs

import numpy as np

VOCABULARY = 256


def encode(text: str) -> np.ndarray:
    """UTF-8 bytes; what the terminal could not decode comes through as the bytes it was."""
    return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)


def decode(ids: np.ndarray | list[int]) -> str:
    """Text; bytes that are not UTF-8 become the replacement character."""
    return bytes(np.asarray(ids, np.uint8)).decode("utf-8", "replace")


def printable(text: str) -> str:
    """Safe for a terminal: control characters, which could move its cursor or worse, become a dot."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{MIDDLE DOT}" for c in text)


class StreamDecoder:
    """decode() for bytes that arrive one at a time: a character appears when its last byte is there."""

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, byte: int) -> str:
        return self.decoder.decode(bytes([byte]))

    def end(self) -> str:
        return self.decoder.decode(b"", final=True)
