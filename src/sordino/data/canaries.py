"""Canaries: crafted records, each in or out of a silo by a coin of its own. An audit asks the result which were in.

    candidates ── fair coins, fixed before the run ──► those that are in join one silo's records

They stand for nobody and follow from public facts and a seed alone. To the training they are records like any other,
so they cost utility and no privacy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.seeds import stream
from sordino.data.examples import BELONGING, IGNORE, Examples
from sordino.data.federation import FederatedData

Kind: TypeAlias = Literal["random", "mislabelled"]
"""`random`: noise in the public range, with a random label. `mislabelled`: held-out public records with a wrong one."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Candidates, and which of them are in.

    Args:
        silo: Name of the client whose records they join.
        records: All candidates, shape (m, ...): also those that stay out.
        included: One fair coin each, shape (m,). Never told to whoever trains.
    """

    silo: str
    records: Examples
    included: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.included)

    @property
    def expected(self) -> int:
        """How many are in, as far as anybody may know: what counts and divisors are made of."""
        return len(self) // 2

    @property
    def surplus(self) -> int:
        """What turns a count with the realised coins into one with the expected coins."""
        return self.expected - int(self.included.sum())

    @property
    def digest(self) -> str:
        """SHA-256 over silo, records and coins: who has seen it before the run knows that none was changed since.

        It hides the coins only from those who do not know the seed.
        """
        found = hashlib.sha256(self.silo.encode())
        for array in (self.records.x, self.records.y, self.included):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def to_plain(self) -> dict[str, Any]:
        """Coins and digest as JSON-able values; the records follow from the seed."""
        return {"silo": self.silo, "included": self.included.tolist(), "digest": self.digest}


def craft(
    data: FederatedData,
    silo: str,
    count: int,
    seed: int,
    kind: Kind,
    held: Examples | None = None,
    form: Examples | None = None,
) -> Canaries:
    """Candidates for a silo, with their coins.

    Args:
        data: The federation, for the public shape of a record.
        silo: Whose records they are to join.
        count: Number of candidates m, >= 1.
        seed: Of the audit. It decides records and coins, so it must be unknown to whoever should not know these.
        kind: How they are made.
        held: For `mislabelled`: as many public records that nobody trains on (`set_aside`).
        form: One made-up record, where records are elsewhere: every machine then makes the same candidates.

    Raises:
        ConfigError: No such silo, or held-out records without a label of their own.
        PrivacyError: Mislabelled records would copy private ones.
        ConfigError: Records are elsewhere, and no form is given.

    Guarantee:
        No value of a private record has a part in what is made.

    >>> examples = Examples(np.zeros((2, 3), np.float32), np.array([0, 1]), classes=2)
    >>> data = FederatedData(examples, ("a",), (np.arange(2),))
    >>> canaries = craft(data, "a", 100, seed=0, kind="random")
    >>> len(canaries), canaries.expected, insert(data, canaries).sizes[0] - 2 == canaries.included.sum()
    (100, 50, np.True_)
    """
    checks.count("canaries", count=count)
    if form is None:
        data.require_here()
    rng, like = stream(seed, "canaries"), data.examples if form is None else form
    if kind == "random":
        x, y = _random(like, count, rng)
    else:
        x, y = _mislabelled(held, like, rng)
    records = replace(data.examples, x=x, y=y, **_belonging(data, silo, count)).validated("canaries")
    return Canaries(silo, records, stream(seed, "canary coins").random(count) < 0.5)


def insert(data: FederatedData, canaries: Canaries) -> FederatedData:
    """The federation with those that are in, behind their silo's own records; of a silo elsewhere they only count."""
    added = canaries.records.take(np.flatnonzero(canaries.included))
    own, home, start = data.examples, data.index(canaries.silo), len(data.examples)
    if canaries.silo in data.elsewhere:
        counted = np.broadcast_to(np.int64(start), (len(data.rows[home]) + len(added),))
        return replace(data, rows=(*data.rows[:home], counted, *data.rows[home + 1 :]))
    arrays = {name: (getattr(own, name), getattr(added, name)) for name in ("x", "y", *BELONGING)}
    joined: dict[str, Any] = {name: np.concatenate(pair) for name, pair in arrays.items() if pair[0] is not None}
    end = start + len(added)  # who is elsewhere stays past the last record
    rows = [
        np.broadcast_to(np.int64(end), own_rows.shape) if name in data.elsewhere else own_rows
        for name, own_rows in zip(data.names, data.rows, strict=True)
    ]
    rows[home] = np.concatenate([rows[home], np.arange(start, end)])
    return replace(data, examples=replace(own, **joined), rows=tuple(rows))


def set_aside(test: FederatedData, count: int, seed: int) -> tuple[FederatedData, Examples]:
    """The test part without some records, and those: a model that has seen them is not judged by them.

    Raises:
        ConfigError: The test part is too small.
    """
    everything = np.concatenate(test.rows)
    if count >= len(everything):
        raise ConfigError.about("canaries", f"must be below the {len(everything)} held-out records", count=count)
    chosen = stream(seed, "canaries set aside").choice(everything, count, replace=False)
    left = [rows[~np.isin(rows, chosen)] for rows in test.rows]
    kept = [i for i, rows in enumerate(left) if len(rows)]
    names = tuple(test.names[i] for i in kept)
    return FederatedData(test.examples, names, tuple(left[i] for i in kept)), test.examples.take(chosen)


def _random(like: Examples, count: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.int64]]:
    x: NDArray[Any]
    if like.vocabulary is not None:
        # Any token but the one that fills up.
        x = rng.integers(0, like.vocabulary - (like.padding is not None), (count, *like.shape))
        x += (x >= like.padding) if like.padding is not None else 0
    else:
        x = rng.uniform(*_range(like), (count, *like.shape)).astype(np.float32)
        _pick_categories(x, like.features, rng)
    if like.y.ndim == 1:
        return x, rng.integers(0, like.classes, count)
    y = np.full(x.shape, IGNORE, np.int64)
    y[:, :-1] = x[:, 1:]
    return x, y


def _range(like: Examples) -> tuple[Any, Any]:
    """Lowest and highest value: of public data their own, else what loaders scale columns and pixels to."""
    if like.public:
        return like.x.min(axis=0), like.x.max(axis=0)
    return (-1.0 if like.features else 0.0), 1.0


def _pick_categories(x: NDArray[np.float32], features: tuple[str, ...], rng: np.random.Generator) -> None:
    """Columns `name=category` hold a single 1 per name, and nothing is missing. In place."""
    names: dict[str, list[int]] = {}
    for column, feature in enumerate(features):
        name, is_category, _ = feature.partition("=")
        if is_category:
            names.setdefault(name, []).append(column)
        elif feature.endswith(" missing"):
            x[:, column] = 0
    for columns in names.values():
        x[:, columns] = 0
        x[np.arange(len(x)), rng.choice(columns, len(x))] = 1


def _mislabelled(
    held: Examples | None, like: Examples, rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if not like.public:
        rule = "copies records of people who take no part in the training"
        raise PrivacyError.about("canaries", rule, 'use kind = "random"', kind="mislabelled")
    if held is None or held.y.ndim > 1:
        raise ConfigError.about("canaries", "needs held-out records with a label each", kind="mislabelled")
    return held.x, (held.y + rng.integers(1, held.classes, len(held))) % held.classes


def _belonging(data: FederatedData, silo: str, count: int) -> dict[str, Any]:
    """Whose the candidates are said to be, in the columns that the silo's own records have, where these are."""
    known = {"client": _same, "user": _fresh, "group": _same}
    found = {name: getattr(data.examples, name) for name in BELONGING}
    if silo in data.elsewhere:
        return dict.fromkeys(BELONGING)
    rows = data.rows[data.index(silo)]
    return {name: None if values is None else known[name](values, rows, count) for name, values in found.items()}


def _same(values: NDArray[Any], rows: NDArray[np.int64], count: int) -> NDArray[Any]:
    """What the silo's first record is said to be: its client, and a public label."""
    return np.repeat(values[rows[:1]], count)


def _fresh(values: NDArray[Any], rows: NDArray[np.int64], count: int) -> NDArray[Any]:
    """People who own nothing else: one per canary."""
    del rows
    if np.issubdtype(values.dtype, np.integer):
        return np.arange(values.max() + 1, values.max() + 1 + count, dtype=values.dtype)
    return np.array([f"canary {i}" for i in range(count)], dtype=values.dtype if values.dtype == object else None)
