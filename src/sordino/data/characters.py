"""Text as characters: LEAF's alphabet, and windows that predict the next character."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare, in its order: a character's token is its place here."""

_TOKEN = np.full(128, -1, np.int64)
_TOKEN[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))


def tokens(text: str) -> NDArray[np.int64]:
    """The place of every character in the alphabet; -1 for a character that is not in it.

    >>> tokens("a b#").tolist()
    [53, 1, 54, -1]
    """
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.where(points < 128, _TOKEN[np.minimum(points, 127)], -1)


def simplified(text: str) -> str:
    """Text in the alphabet alone: accents and other marks go, typographic quotes and dashes become plain.

    >>> simplified("Fêted — ‘sir’…")
    "Feted - 'sir'..."
    """
    plain = text.translate(str.maketrans("‘’“”–—", "''\"\"--"))
    return "".join(letter for letter in unicodedata.normalize("NFKD", plain) if letter in ALPHABET)


def windows(text: str, length: int, stride: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inputs of `length` characters, one every `stride`, and the character that follows each.

    Args:
        text: In the alphabet alone, see `simplified`.
        length: Characters in a window, >= 1.
        stride: Steps from one window to the next, >= 1. At least `length` and no two windows overlap.

    Returns:
        Tokens of shape (n, length) and of shape (n,); n is 0 for a text of `length` characters or fewer.

    >>> [part.tolist() for part in windows("abcde", length=2, stride=2)]
    [[[53, 54], [55, 56]], [55, 57]]
    """
    sequence = tokens(text)
    if len(sequence) <= length:
        return np.empty((0, length), np.int64), np.empty(0, np.int64)
    every: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(sequence, length + 1)[::stride]
    return every[:, :-1].copy(), every[:, -1].copy()
