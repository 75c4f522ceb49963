"""Which way of training a cohort is fastest for a model: tried once at start, on made-up records of the public shape.

    loop      one client after another, by the ordinary trainers
    vmap      `Mapped`, for whole clients only
    stacked   `Twin`, preferred to `vmap` unless that is clearly faster

The ways agree up to rounding. That is tried too, and a way that does not agree is ruled out, so the choice is one of
speed: no part of the plan, of its digest or of its guarantee.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, TypeVar

from torch import nn

from sordino.core.errors import ConfigError, SordinoError
from sordino.local.clipping import ClippingEngine
from sordino.local.cohort._trial import Trial, kept, near
from sordino.local.cohort.mapped import Mapped
from sordino.local.cohort.plain import Stack
from sordino.local.cohort.twin import Twin
from sordino.local.losses import Loss
from sordino.local.models import InputSpec

Way: TypeAlias = Literal["auto", "loop", "vmap", "stacked"]
"""How a cohort trains; `auto` measures."""

Kind = TypeVar("Kind", bound=Stack)

REPEATS = 3
"""How often each way is timed; the fastest counts, since other programs can only slow it down."""

REFUSALS = (SordinoError, RuntimeError, AttributeError, TypeError, ValueError, IndexError)
"""What a model may raise that cannot be stacked, mapped or tried, or that looks into its own layers."""

CLEARLY = 0.8
"""A way must take less than this share of the time of the one before it: noise must not make runs differ."""

LONG_S = 0.2
"""No further repeat after so many CPU seconds."""


def choose_plain(model: nn.Module, loss: Loss, spec: InputSpec, examples: int, way: Way = "auto") -> Stack | None:
    """How to train whole clients of a model.

    Args:
        model: In the mode it is to train in.
        loss: One loss per example.
        spec: Shape of a record. Public.
        examples: Records per step, about. Public.
        way: Which one, or `auto`.

    Returns:
        The model for many clients, or None to train one after another.

    Raises:
        ConfigError: The model cannot train in the way asked for.
    """
    makers: dict[Way, Callable[[], Stack]] = {
        "stacked": lambda: Twin(model, loss),
        "vmap": lambda: Mapped(model, loss),
    }
    trial = Trial(model, loss, spec, examples)

    def agree(stack: Stack) -> bool:
        return all(near(a, b) for a, b in zip(trial.together(stack), trial.one_by_one(), strict=True))

    with kept(model):
        found = _found(makers, agree, trial, way)
        tasks = {name: lambda stack=stack: trial.together(stack) for name, stack in found.items()}
        return _best(found, tasks, trial.one_by_one, way)


def choose_private(
    model: nn.Module, loss: Loss, spec: InputSpec, examples: int, engine: ClippingEngine, way: Way = "auto"
) -> Twin | None:
    """How to train silos that protect their records; see `choose_plain`.

    Args:
        model: In the mode it is to train in.
        loss: One loss per example.
        spec: Shape of a record. Public.
        examples: Records per step, about. Public.
        engine: What clips for one silo.
        way: Which one, or `auto`.
    """
    trial = Trial(model, loss, spec, examples)
    makers: dict[Way, Callable[[], Twin]] = {"stacked": lambda: Twin(model, loss)}
    with kept(model):
        found = _found(makers, trial.shares_add_up, trial, way)
        tasks = {name: lambda twin=twin: trial.clipped_together(twin) for name, twin in found.items()}
        return _best(found, tasks, lambda: trial.clipped_one_by_one(engine), way)


def _found(
    makers: Mapping[Way, Callable[[], Kind]], agree: Callable[[Kind], bool], trial: Trial, way: Way
) -> dict[Way, Kind]:
    """The ways that may be used and give what one client after another gives."""
    found = {}
    for name, make in makers.items():
        if way not in ("auto", name) or trial.clients < 2:
            continue
        try:
            stack = make()
            if agree(stack):
                found[name] = stack
        except REFUSALS:
            continue
    return found


def _best(
    found: Mapping[Way, Kind], tasks: Mapping[Way, Callable[[], object]], loop: Callable[[], object], way: Way
) -> Kind | None:
    if way == "loop" or (way == "auto" and not found):
        return None
    if way != "auto":
        if way not in found:
            raise ConfigError.about("simulation", "does not suit the model", 'use "auto"', cohort=way)
        return found[way]
    best, least = None, CLEARLY * _fastest(loop)
    for name, stack in found.items():
        spent = _fastest(tasks[name])
        if spent < least:
            best, least = stack, CLEARLY * spent
    return best


def _fastest(task: Callable[[], object]) -> float:
    """CPU seconds of the fastest run. What takes long anyway is timed once."""
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < LONG_S:
        start = time.process_time()
        task()
        spent.append(time.process_time() - start)
    return min(spent)
