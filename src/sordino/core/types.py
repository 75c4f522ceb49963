"""The nouns that more than one room speaks of. Values are frozen; arrays inside are read-only by convention."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One flat float32 vector of the trainable, released parameters. Shape (d,)."""


class Unit(enum.StrEnum):
    """Whose presence is hidden."""

    RECORD = "record"
    USER = "user"
    CLIENT = "client"


class NoiseAt(enum.StrEnum):
    """Where noise is added, hence who must be trusted with what lies before it."""

    SILO = "silo"
    SUM = "sum"
    COORDINATOR = "coordinator"


class Adjacency(enum.StrEnum):
    """The neighbouring relation. A sum clipped to C moves by at most C, 2C, C."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"


class Visibility(enum.StrEnum):
    """Who may see a number: anyone; anyone, because it went through a door; only its silo."""

    PUBLIC = "public"
    RELEASED = "released"
    PRIVATE = "private"


@dataclass(frozen=True)
class Group:
    """A named stretch of the flat vector: one parameter tensor."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class RoundPlan:
    """What is announced for one round. Every field is public; the cohort is never one.

    Args:
        round: Number of the round, from 0.
        rounds: Number of rounds of the whole run.
        groups: The parameter tensors, in the order of the flat vector.
        expected: Expected number of contributors, the public divisor.
    """

    round: int
    rounds: int
    groups: tuple[Group, ...]
    expected: float


@dataclass(frozen=True)
class Update:
    """One client's change as a flat vector, or a sum of several.

    Args:
        vector: Shape (d,), float32 from a client, float64 in a sum.
        count: How many clients' changes it sums.
        records: How many records stand behind it. Private unless declared public.
    """

    vector: NDArray[np.floating]
    count: int = 1
    records: int = 0
