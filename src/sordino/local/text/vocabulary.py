"""A public model's whole words and their vectors: the rows of its input embedding. Nothing here is private."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError

WHERE = "vocabulary"
TABLES = ("word_embeddings.weight", "embed_tokens.weight", "wte.weight", "shared.weight")
"""How models name the table of their input vectors, at the end of its name."""

STARTS = ("Ġ", "▁")
"""What marks the start of a word in tokenizers that mark it; WordPiece marks what goes on instead, with ##."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words in a public order, and a vector each.

    Args:
        words: In the form of `plain`, each once.
        vectors: Shape (words, d), each of length 1.
    """

    words: tuple[str, ...]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, words: list[str], vectors: NDArray[Any]) -> Vocabulary:
        """Words with vectors of any length; of words that `plain` makes equal the first one counts."""
        first = {word: row for row, word in reversed([*enumerate(map(plain, words))])}
        kept = sorted(first.values())
        rows = np.asarray(vectors, dtype=np.float32)[kept]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return cls(tuple(plain(words[row]) for row in kept), unit)


def plain(word: str) -> str:
    """A word without case and accents: the form in which words are looked up.

    >>> plain("Éclair")
    'eclair'
    """
    return "".join(c for c in unicodedata.normalize("NFKD", word.lower()) if not unicodedata.combining(c))


def vocabulary(folder: Path) -> Vocabulary:
    """The whole words of a base model's folder, numbers included.

    Raises:
        ConfigError: The folder has no tokenizer.json, no weights, or no table of input vectors among them.
    """
    tokens, marked = _tokens(folder)
    rows, words = [], []
    for token, row in sorted(tokens.items(), key=lambda item: item[1]):
        word = token if not marked else token[1:] if token.startswith(STARTS) else ""
        if word.isdecimal() or word.isalpha():
            rows.append(row)
            words.append(word)
    if not words:
        raise ConfigError.about(WHERE, "has no whole words", "use another base", folder=str(folder))
    return Vocabulary.of(words, _table(folder)[rows])


def _tokens(folder: Path) -> tuple[dict[str, int], bool]:
    """Tokens by row, and whether those that start a word are marked."""
    try:
        model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
        entries, kind = model["vocab"], model.get("type")
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError.about(WHERE, "needs a tokenizer.json with a vocabulary", folder=str(folder)) from None
    # Unigram models list their tokens, with scores.
    tokens = entries if isinstance(entries, dict) else {str(entry[0]): row for row, entry in enumerate(entries)}
    return tokens, kind not in ("WordPiece", "WordLevel")


def _table(folder: Path) -> NDArray[np.float32]:
    try:
        import torch  # noqa: F401 - safetensors reads with it, since numpy knows no bfloat16
        from safetensors import safe_open
    except ImportError as missing:
        raise ConfigError.about(WHERE, f"needs {missing.name}", "pip install 'sordino[lm]'") from None
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            for name in content.keys():  # noqa: SIM118 - not a dict
                if name.endswith(TABLES):
                    table: NDArray[np.float32] = content.get_tensor(name).float().numpy()
                    return table
    raise ConfigError.about(WHERE, "has no table of input vectors", "use another base", folder=str(folder))
