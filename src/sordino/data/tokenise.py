"""Texts to tokens of one public length, by the base model's own tokenizer; neither torch nor transformers is needed.

task        record                 x                          y
classify    "a fine film"          [CLS] a fine film [SEP] 0  its label
continue    "To be or not"         To be or not               be or not EOS
continue    user: Ay? assistant:   < user > Ay? < bot > No    . . . . . No END     (. is IGNORE)
            No

One record is one sequence: two records never share one, so a record's gradient is its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import count, one_of
from sordino.core.errors import ConfigError
from sordino.data.chat import EXTRA, Chat, Range, chat
from sordino.data.examples import IGNORE, Examples
from sordino.data.texts import Message, Texts

WHERE = "tokenise"

Tokens: TypeAlias = NDArray[np.int64]


def encode(texts: Texts, folder: Path, *, length: int, task: Literal["classify", "continue"]) -> Examples:
    """Examples of texts, for one base model.

    Texts are cut at their end. A record whose counted tokens are all cut off stays a record: its loss is 0, and
    how many records there are does not depend on what they say.

    Args:
        texts: The records.
        folder: The base model's: config.json, tokenizer.json and what lies beside them.
        length: Tokens of a record, public.
        task: "classify": y is the label. "continue": y is the next token; in a plain text every token counts, in a
            conversation those that the assistant says.

    Returns:
        x of shape (n, length), int64, filled up at the end with `padding`; y of shape (n,) or (n, length);
        `classes` is the vocabulary where tokens are to be predicted. A conversation is rendered by the base's
        chat template.

    Raises:
        ConfigError: tokenizers or jinja2 is missing, the folder is no base model's, the length does not fit the
            model, or the task does not fit the texts.

    Guarantee:
        A row of x and y depends on its own record alone.
    """
    count(WHERE, length=length)
    one_of(WHERE, ("classify", "continue"), task=task)
    base = _Base.read(folder)
    base.check(length)
    return _classify(texts, base, length) if task == "classify" else _continue(texts, base, length)


def _classify(texts: Texts, base: _Base, length: int) -> Examples:
    """Inputs with the special tokens of the tokenizer, the last of which is kept, and the labels."""
    if texts.y is None or texts.classes is None:
        raise ConfigError.about(WHERE, "needs labels to classify texts", "name the column: label = …")
    if length <= base.tokenizer.num_special_tokens_to_add(is_pair=False):
        raise ConfigError.about(WHERE, "leaves no room beside the special tokens", "raise it", length=length)
    base.tokenizer.enable_truncation(max_length=length)
    # A template writes the special tokens itself, and text does not.
    plain = [isinstance(record, str) for record in texts.records]
    words = [record if isinstance(record, str) else base.chat.text(record) for record in texts.records]
    x = np.full((len(texts), length), base.padding, np.int64)
    for row, encoding in enumerate(base.encoded(words, plain)):
        x[row, : len(encoding.ids)] = encoding.ids
    return _examples(texts, base, x, texts.y, texts.classes)


def _continue(texts: Texts, base: _Base, length: int) -> Examples:
    """Inputs and, one place ahead, the targets that count."""
    x = np.full((len(texts), length), base.padding, np.int64)
    y = np.full((len(texts), length), IGNORE, np.int64)
    plain = [isinstance(record, str) for record in texts.records]
    parts = [_counted(record, base, i) for i, record in enumerate(texts.records)]
    encodings = base.encoded([words for words, _ in parts], plain)
    for row, (encoding, (_, ranges)) in enumerate(zip(encodings, parts, strict=True)):
        tokens, counts = _sequence(encoding, ranges, base.end)
        tokens, counts = tokens[: length + 1], counts[: length + 1]
        x[row, : len(tokens) - 1] = tokens[:-1]
        y[row, : len(tokens) - 1] = np.where(counts[1:], tokens[1:], IGNORE)
    return _examples(texts, base, x, y, base.vocabulary)


def _counted(record: str | tuple[Message, ...], base: _Base, row: int) -> tuple[str, list[Range] | None]:
    """A record in one text, and the ranges of characters to be learnt; None for all of it."""
    if isinstance(record, str):
        return record, None
    words, ranges = base.chat.turns(record)
    if not ranges:
        rule = f"record {row} has no turn of the assistant, so there is nothing to learn from it"
        raise ConfigError.about(WHERE, rule, "leave it out")
    return words, list(ranges)


def _sequence(encoding: Any, ranges: list[Range] | None, end: int | None) -> tuple[Tokens, NDArray[np.bool_]]:
    """Tokens of one record, and which of them count as targets."""
    tokens = list(encoding.ids)
    if ranges is None:
        if end is not None and tokens[-1:] != [end]:
            tokens.append(end)
        return np.array(tokens, np.int64), np.ones(len(tokens), bool)
    # By where a token ends: byte-level tokenizers report a token without its leading spaces, and a space that the
    # template writes before an answer is one token with the answer's first word.
    ends = np.array([last for _, last in encoding.offsets], np.int64)
    counts = np.zeros(len(tokens), bool)
    for first, last in ranges:
        counts |= (first < ends) & (ends <= last)
    return np.array(tokens, np.int64), counts


def _examples(texts: Texts, base: _Base, x: Tokens, y: Tokens, classes: int) -> Examples:
    return Examples(
        x=x,
        y=y,
        classes=classes,
        client=texts.client,
        user=texts.user,
        group=texts.group,
        public=texts.public,
        source=texts.source,
        licence=texts.licence,
        vocabulary=base.vocabulary,
        padding=base.padding,
    ).validated(base.where)


@dataclass(frozen=True)
class _Base:
    """What a base model's folder says of its tokens."""

    folder: Path
    tokenizer: Any
    vocabulary: int
    longest: int | None
    specials: dict[str, str]
    padding: int
    end: int | None

    @classmethod
    def read(cls, folder: Path) -> _Base:
        where = f"base {folder.name}"
        tokenizer = _tokenizer(folder, where)
        config = _json(folder / "config.json", where)
        config = {**config, **config.get("text_config", {})}
        specials = _specials(folder, where)
        ids = {name: tokenizer.token_to_id(text) for name, text in specials.items()}
        end = ids.get("eos_token")
        padding = next((i for i in (ids.get("pad_token"), config.get("pad_token_id"), end) if i is not None), None)
        if padding is None:
            raise ConfigError.about(where, "names neither a padding token nor an end-of-text token", "add pad_token")
        vocabulary, longest = config.get("vocab_size"), config.get("max_position_embeddings")
        if not isinstance(vocabulary, int):
            raise ConfigError.about(where, "has no vocab_size in config.json", "get the base again")
        return cls(folder, tokenizer, vocabulary, longest, specials, int(padding), end)

    @property
    def where(self) -> str:
        return f"base {self.folder.name}"

    def check(self, length: int) -> None:
        if self.longest is not None and length > self.longest:
            raise ConfigError.about(self.where, f"reads at most {self.longest} tokens", "lower it", length=length)

    @cached_property
    def chat(self) -> Chat:
        special = [token.content for token in self.tokenizer.get_added_tokens_decoder().values() if token.special]
        return chat(self.folder, self.specials, special)

    def encoded(self, words: Sequence[str], plain: Sequence[bool]) -> list[Any]:
        """Encodings in order; plain texts get the tokenizer's own special tokens."""
        found: dict[int, Any] = {}
        for kind in (True, False):
            rows = [row for row, this in enumerate(plain) if this is kind]
            batch = self.tokenizer.encode_batch([words[row] for row in rows], add_special_tokens=kind)
            found.update(zip(rows, batch, strict=True))
        return [found[row] for row in range(len(words))]


def _tokenizer(folder: Path, where: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError.about(WHERE, "texts need the library tokenizers", EXTRA) from None
    file = folder / "tokenizer.json"
    if not file.is_file():
        rule, remedy = "lacks tokenizer.json", "take a base with a fast tokenizer"
        raise ConfigError.about(where, rule, remedy)
    tokenizer = Tokenizer.from_file(str(file))
    # Both may be stored in the file, with a length that is not ours.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _specials(folder: Path, where: str) -> dict[str, str]:
    """Texts of the special tokens by what they are for, e.g. `eos_token`; the tokenizer's configuration goes first."""
    found: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        file = folder / name
        for key, value in (_json(file, where) if file.is_file() else {}).items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str):
                found[key] = text
    return found


def _json(file: Path, where: str) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError):
        raise ConfigError.about(where, f"lacks a readable {file.name}", "get the base again") from None
