"""What the suite asks of somebody's mechanism, about forty lines an adapter: what it claims, and one release.

    claim()                                   what it says of itself
    release(model, updates, weights, seed)    what it lets out of one round, or of one step

Everything else is optional; a check that needs what a target lacks says so (`N-A`). Nothing has to be inherited:

    class Mine:
        name = "mine"
        def claim(self): return Declared(by="mine 1.0", noise_multiplier=1.0, clip=1.0, cohort=10)
        def release(self, model, updates, weights, seed):
            generator = numpy.random.default_rng(seed)
            ...

    def targets(): return [Mine()]            # sordino audit conformance --target my_module:targets
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sordino.core.types import Adjacency, Unit

if TYPE_CHECKING:
    from pathlib import Path

    import torch

Tensors: TypeAlias = Mapping[str, Any]
"""Named arrays, numpy's (or torch's, where numpy knows no such type)."""


BUFFERS = ("running_mean", "running_var")
"""Last parts of the names of what a model keeps beside its parameters, and no gradient ever reaches."""


class NotApplicable(Exception):
    """The question has no meaning for this target; the message says why."""


class Refused(Exception):
    """The target turned the round or the setting away, and released nothing."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a mechanism says of itself.

    Args:
        by: What, with its version and the settings in use.
        noise_multiplier: Noise scale over how far one unit may move what is noised, under the declared relation;
            None where no noise is claimed.
        clip: Bound on one unit's update.
        cohort: How many units' updates make up one release, at least 3.
        unit: Whose presence it hides.
        adjacency: Under which relation.
        law: Of the noise.
        norm: In which the clip is measured: 1 or 2.
        rate: Probability that a unit takes part in a step of `train`.
        sampling: By which law units take part.
        epsilon: Of one release, where it is set by ε.
        delta: With it.
        discloses: What its documentation says openly of a fault: by check, `C02`, or by check and case,
            `C06:train_loss`; the text names where.
    """

    by: str
    noise_multiplier: float | None
    clip: float
    cohort: int
    unit: Unit = Unit.CLIENT
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    law: Literal["gaussian", "laplace"] = "gaussian"
    norm: int = 2
    rate: float = 1.0
    sampling: Literal["all", "poisson"] = "all"
    epsilon: float | None = None
    delta: float | None = None
    discloses: Mapping[str, str] = field(default_factory=dict)


class Target(Protocol):
    """What can be examined."""

    @property
    def name(self) -> str:
        """In the table; distinct among its factory's targets."""
        ...

    def claim(self) -> Declared:
        """What it says of itself."""
        ...

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        """One round: what is released of the units' updates, in any fixed public unit of length.

        Args:
            model: What the round starts from. Its names, shapes and types are public.
            updates: What each unit that answers wants to change of it. For records, each one's gradient.
            weights: What each says its weight is, such as its number of examples.
            seed: Makes the framework's own noise repeat exactly; None draws it as in production.

        Raises:
            NotApplicable: Such updates or weights do not exist here.
            Refused: The framework turned it away and released nothing.
        """
        ...


class Silent:
    """A base for targets that release nothing themselves, such as accountants."""

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        """Nothing.

        Raises:
            NotApplicable: Always.
        """
        del model, updates, weights, seed
        raise NotApplicable("it releases nothing itself")


@runtime_checkable
class Series(Protocol):
    """Several releases one after another under one seeding: whether noise is drawn anew."""

    def series(self, model: Tensors, updates: Sequence[Tensors], count: int, seed: int) -> list[Tensors]:
        """So many releases of the same updates."""
        ...


@runtime_checkable
class Wire(Protocol):
    """What else leaves in a round."""

    def wire(self, model: Tensors, updates: Sequence[Tensors], seed: int) -> Mapping[str, Any]:
        """Every number besides the released tensors that somebody outside the trusted place sees, by field."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """A clip norm that follows the updates."""

    def norms(self, model: Tensors, updates: Sequence[Tensors], rounds: int, seed: int) -> list[float]:
        """The norm in use, before the first of so many rounds with these updates and after each."""
        ...


@runtime_checkable
class Sized(Protocol):
    """Works for cohorts of any size."""

    def with_cohort(self, count: int) -> Target:
        """The same mechanism for so many units."""
        ...


@runtime_checkable
class Budgeted(Protocol):
    """Noise that is set from ε and δ."""

    def with_budget(self, epsilon: float, delta: float) -> Target:
        """The same mechanism for one release at another budget, which its `claim` repeats."""
        ...


@runtime_checkable
class Accounts(Protocol):
    """Says what releases cost."""

    def price(self, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
        """Its ε of that many Gaussian releases, Poisson sampled at `rate` where that is below 1."""
        ...


@runtime_checkable
class Restores(Protocol):
    """An accountant that can stop and go on."""

    def restored(self, noise_multiplier: float, before: int, after: int, delta: float) -> float:
        """Its ε when it is stopped after some releases, restarted as its documentation says, and goes on."""
        ...


@runtime_checkable
class Persists(Protocol):
    """Says after each run what was spent."""

    def spent_by(self, folder: Path, noise_multiplier: float, releases: int, delta: float) -> float:
        """Its ε at the end of a run of so many releases, which works in this folder.

        Called in a process of its own, once for each run. What an earlier run left in the folder is still there; the
        adapter adds nothing that the framework leaves to its users.
        """
        ...


@runtime_checkable
class Federates(Protocol):
    """Accounts for training that goes on round after round."""

    def over_rounds(self, noise_multiplier: float, rate: float, rounds: int, steps: int, delta: float) -> float:
        """What it says after the last of some rounds with so many Poisson-sampled steps each."""
        ...


@runtime_checkable
class Filters(Protocol):
    """An accountant that stops at a limit."""

    def releases_within(self, noise_multiplier: float, epsilon: float, delta: float, most: int) -> int:
        """How many releases come out before it stops, trying at most so many."""
        ...


@runtime_checkable
class Trains(Protocol):
    """Samples units by itself, step after step."""

    def train(
        self, updates: NDArray[np.float32], steps: int, noise_multiplier: float, seed: int
    ) -> NDArray[np.float64]:
        """What every step releases, in units of the sum. Shape (steps, d).

        Args:
            updates: The population: each unit's constant gradient or update. Shape (units, d).
            steps: How many.
            noise_multiplier: Instead of the claimed one.
            seed: Of everything random.
        """
        ...


@runtime_checkable
class Steps(Protocol):
    """Takes one private step on any torch module: for records."""

    def step(self, module: torch.nn.Module, loss: Any, batch: tuple[Any, Any], seed: int) -> Mapping[str, Any]:
        """One step with learning rate 1 times the expected batch, on all records of the batch.

        Args:
            module: Is changed.
            loss: Outputs and targets to one loss per record.
            batch: Inputs and targets, one row a record.
            seed: Of the noise.

        Returns:
            The exported state after the step, by name, as numpy arrays.
        """
        ...


@runtime_checkable
class Partial(Protocol):
    """Trains a part of a torch module."""

    def gradients(
        self, module: torch.nn.Module, loss: Any, batch: tuple[Any, Any], trained: Sequence[str], seed: int
    ) -> Mapping[str, Any]:
        """What parameters' `.grad` hold after a step that trains only these, by name; what is None is left out."""
        ...


@runtime_checkable
class Sums(Protocol):
    """Secure summation."""

    def secure_sum(
        self, updates: Sequence[NDArray[np.float32]], missing: Sequence[int], seed: int
    ) -> NDArray[np.float64]:
        """The decoded sum of those who did not drop out."""
        ...


@runtime_checkable
class Masks(Protocol):
    """Masks that hide an update in a secure sum."""

    def mask(self, key: bytes, size: int) -> NDArray[Any]:
        """The mask that a shared key of 32 bytes gives."""
        ...
