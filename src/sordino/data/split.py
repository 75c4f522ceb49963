"""Held-out records, silo by silo: stratified by label for public data, by one coin per record for private data."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.checks import count as whole
from sordino.core.checks import fraction
from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData, pooled

__all__ = ["coin_split", "held_out", "holdout", "pooled", "train_test"]

Rows: TypeAlias = NDArray[np.int64]


def train_test(federated: FederatedData, test_fraction: float, seed: int) -> tuple[FederatedData, FederatedData]:
    """Every silo's records in two parts that share no record.

    Labels, where a record has one, keep their shares: no label's count in a part differs from its
    exact share by one or more. A silo of two or more records has at least one in each part; a silo
    of one trains only, and is no client of the test part.

    Args:
        federated: The silos.
        test_fraction: Share of each silo that is held out, in (0, 1).
        seed: The experiment's seed.

    Raises:
        ConfigError: The fraction lies outside (0, 1), or every silo has a single record.

    >>> examples = Examples(np.zeros((10, 1), np.float32), np.arange(10) % 2, classes=2)
    >>> train, test = train_test(FederatedData(examples, ("all",), (np.arange(10),)), 0.4, seed=0)
    >>> sorted(test.silo(0).y.tolist()), train.sizes
    ([0, 0, 1, 1], (6,))
    """
    fraction("split", test_fraction=test_fraction)
    labels = federated.examples.y
    names, train, test = [], [], []
    for i, rows in enumerate(federated.rows):
        held = min(max(round(test_fraction * len(rows)), 1), len(rows) - 1)
        rest, out = _stratified(rows, labels, held, stream(seed, "split", i))
        train.append(rest)
        if len(out):
            names.append(federated.names[i])
            test.append(out)
    if not test:
        raise ConfigError.about("split", "leaves nothing to test on: every client has one record", "use fewer clients")
    return replace(federated, rows=tuple(train)), replace(federated, names=tuple(names), rows=tuple(test))


def coin_split(
    federated: FederatedData, test_fraction: float, seed: int, *, by_user: bool = False
) -> tuple[FederatedData, FederatedData]:
    """Every silo's records in two parts, each record by a coin of its own.

    The coin is a hash of seed and record (or person), so nobody else's presence decides where a record goes:
    neighbouring files have neighbouring training parts, and a guarantee for the one is a guarantee for the other.
    Stratified parts (`train_test`) are more even, but couple all records of a silo.

    Args:
        federated: The silos.
        test_fraction: Probability to be held out, in (0, 1).
        seed: The experiment's seed.
        by_user: Keep each person's records together.

    Raises:
        ConfigError: The fraction lies outside (0, 1), or a silo is left without training records.

    Guarantee:
        Files that differ in one record (or person) have training parts that differ in at most that one.
    """
    fraction("split", test_fraction=test_fraction)
    examples, names, train, test = federated.examples, [], [], []
    for name, rows in zip(federated.names, federated.rows, strict=True):
        out = held_out(examples, rows, test_fraction, seed, by_user=by_user)
        train.append(rows[~out])
        if out.any():
            names.append(name)
            test.append(rows[out])
    if not test:
        raise ConfigError.about("split", "leaves nothing to test on", "raise the fraction", test_fraction=test_fraction)
    return replace(federated, rows=tuple(train)), replace(federated, names=tuple(names), rows=tuple(test))


def held_out(
    examples: Examples, rows: Rows, test_fraction: float, seed: int, *, by_user: bool = False
) -> NDArray[np.bool_]:
    """Which of the rows `coin_split` holds out; the arguments are its own."""
    coins = (_coin(examples, int(row), seed, by_user=by_user) for row in rows)
    return np.array([coin < test_fraction for coin in coins], dtype=bool)


def _coin(examples: Examples, row: int, seed: int, *, by_user: bool) -> float:
    """A number in [0, 1) that depends on the seed and on this record alone."""
    person = b"" if examples.user is None else str(examples.user[row]).encode()
    record = b"" if by_user and person else examples.x[row].tobytes() + examples.y[row].tobytes()
    digest = hashlib.blake2b(b"%d/%s/%s" % (seed, person, record), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


def holdout(examples: Examples, count: int, seed: int) -> tuple[Examples, Examples]:
    """Examples without, and the `count` examples that were set aside, stratified by label.

    Args:
        examples: At least `count` + 1 records.
        count: How many records to set aside, >= 1.
        seed: The experiment's seed.

    Raises:
        ConfigError: There are not that many records.

    >>> examples = Examples(np.zeros((10, 1), np.float32), np.arange(10) % 2, classes=2)
    >>> [len(part) for part in holdout(examples, 4, seed=0)]
    [6, 4]
    """
    whole("holdout", count=count)
    if count >= len(examples):
        raise ConfigError.about("holdout", f"must be below the {len(examples)} records", count=count)
    rest, out = _stratified(np.arange(len(examples)), examples.y, count, stream(seed, "holdout"))
    return examples.take(rest), examples.take(out)


def _stratified(rows: Rows, labels: NDArray[np.int64], held: int, random: np.random.Generator) -> tuple[Rows, Rows]:
    """Systematic sampling along the labels: `held` rows at equal steps from a random start.

    Texts have a target per token and no label: their order is random.
    """
    shuffled = random.permutation(rows)
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")] if labels.ndim == 1 else shuffled
    steps = np.floor(np.arange(len(rows) + 1) * held / len(rows) + random.random())
    out = np.diff(steps) > 0
    return np.sort(ordered[~out]), np.sort(ordered[out])
