"""Labelled records in memory: what every loader returns and every partition cuts up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError

IGNORE = -100
"""A target that does not count: padding, or a token that nobody is to learn to say."""

BELONGING = ("client", "user", "group")
"""What may be known of whom a record belongs to, one value a record."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Records with labels, and who they belong to where that is known.

    Args:
        x: Inputs, shape (n, ...): float32, or int64 tokens for text.
        y: Labels, shape (n,), int64 in [0, classes); or the next token at every place, of the shape of x, with
            `IGNORE` where none counts.
        classes: Number of classes, public.
        client: The natural client of each record, shape (n,), or None.
        user: The person behind each record, shape (n,), for the unit `user`, or None.
        public: Published research data, whose plain metrics may be shown.
        source: Where the data comes from, for reports.
        licence: Under what terms, for reports.
        features: Names of the columns of x; empty for images and text.
        vocabulary: Number of tokens, for text only.
        group: A public label per record that sets its budget, e.g. its tier of consent, shape (n,), or None.
        padding: The token that fills short texts up, at their end.

    >>> Examples(np.zeros((4, 2), np.float32), np.array([0, 1, 1, 0]), classes=2).shape
    (2,)
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    classes: int
    client: NDArray[Any] | None = None
    user: NDArray[Any] | None = None
    public: bool = False
    source: str = ""
    licence: str = ""
    features: tuple[str, ...] = ()
    vocabulary: int | None = None
    group: NDArray[Any] | None = None
    padding: int | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return tuple(self.x.shape[1:])

    def take(self, rows: NDArray[np.int64]) -> Self:
        """The records at the given rows, with all that is known about them."""
        known = {name: getattr(self, name) for name in BELONGING}
        kept = {name: array[rows] for name, array in known.items() if array is not None}
        return replace(self, x=self.x[rows], y=self.y[rows], **kept)

    def validated(self, where: str) -> Self:
        """These examples, if nothing is wrong with them.

        Args:
            where: The data set's name in messages, e.g. "dataset.heart".

        Raises:
            ConfigError: No records, lengths that differ, a wrong type, a value that is not finite,
                a label outside the classes or a token outside the vocabulary.

        >>> Examples(np.zeros((1, 2), np.float32), np.array([7]), classes=2).validated("mine")
        Traceback (most recent call last):
        sordino.core.errors.ConfigError: mine: row 0 has label 7, outside the 2 classes; labels run from 0 to 1
        """
        self._check_lengths(where)
        self._check_types(where)
        self._check_values(where)
        self._check_labels(where)
        return self

    def _check_lengths(self, where: str) -> None:
        if not len(self.y):
            raise ConfigError.about(where, "holds no records", "check the file and the chosen part")
        for name in ("x", *BELONGING):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.y):
                raise ConfigError.about(where, f"has {len(array)} rows of {name} but {len(self.y)} labels")
        if self.features and self.shape != (len(self.features),):
            raise ConfigError.about(where, f"has records of shape {self.shape} but {len(self.features)} feature names")

    def _check_types(self, where: str) -> None:
        expected = np.float32 if self.vocabulary is None else np.int64
        for name, array, dtype in (("x", self.x, expected), ("y", self.y, np.int64)):
            if array.dtype != dtype:
                raise ConfigError.about(where, f"has {name} of type {array.dtype}", f"use {np.dtype(dtype)}")

    def _check_values(self, where: str) -> None:
        if self.vocabulary is not None:
            if self.x.min(initial=0) < 0 or self.x.max(initial=0) >= self.vocabulary:
                raise ConfigError.about(where, f"holds a token outside the vocabulary of {self.vocabulary}")
            return
        wrong = ~np.isfinite(self.x)
        if wrong.any():
            place = np.argwhere(wrong)[0]
            column = f", column {self.features[place[1]]!r}" if self.features else ""
            rule = f"holds {wrong.sum()} values that are not finite, the first in row {place[0]}{column}"
            raise ConfigError.about(where, rule, "fill or remove them")

    def _check_labels(self, where: str) -> None:
        if self.y.ndim > 1:
            self._check_targets(where)
            return
        wrong = np.flatnonzero((self.y < 0) | (self.y >= self.classes))
        if len(wrong):
            rule = f"row {wrong[0]} has label {self.y[wrong[0]]}, outside the {self.classes} classes"
            raise ConfigError.about(where, rule, f"labels run from 0 to {self.classes - 1}")

    def _check_targets(self, where: str) -> None:
        if self.y.shape != self.x.shape:
            rule = f"has targets of shape {self.y.shape[1:]} for tokens of shape {self.shape}"
            raise ConfigError.about(where, rule, "give one target per token")
        wrong = np.argwhere((self.y != IGNORE) & ((self.y < 0) | (self.y >= self.classes)))
        if len(wrong):
            row, place = wrong[0]
            rule = f"row {row} has target {self.y[row, place]} at place {place}, outside the {self.classes} tokens"
            raise ConfigError.about(where, rule, f"write {IGNORE} where no target counts")
