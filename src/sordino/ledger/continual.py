"""Training for ever on what comes in: which blocks each future run would charge, and when a block is exhausted.

A block is charged by about (its length + window) / every runs, and then never again: so its budget divided by that
number is what a single run may cost, however long training goes on.

Source:
    Lécuyer et al. (2019), arXiv:1909.01502.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sordino.core import checks
from sordino.core.places import Point, before, written
from sordino.ledger import amounts
from sordino.ledger.blocks import Blocks
from sordino.ledger.windows import distance, length, shifted


@dataclass(frozen=True)
class Budget:
    """An amount of epsilon and delta, in whole units: prices rounded up, budgets down."""

    epsilon: int
    delta: int

    @classmethod
    def price(cls, epsilon: float, delta: float) -> Budget:
        """What a run costs."""
        return cls(
            amounts.charge("forecast", epsilon, amounts.EPSILON), amounts.charge("forecast", delta, amounts.DELTA)
        )

    @classmethod
    def limit(cls, epsilon: float, delta: float) -> Budget:
        """What a block may lose, or has left; may be 0."""
        return cls(
            *(
                amounts.limit("forecast", value, places) if value > 0 else 0
                for value, places in ((epsilon, amounts.EPSILON), (delta, amounts.DELTA))
            )
        )

    def times(self, price: Budget) -> int:
        """How often it pays a price."""
        return min(self.epsilon // price.epsilon, self.delta // price.delta)


@dataclass(frozen=True)
class Step:
    """One future run.

    Args:
        run: Its number, from 1.
        at: When it would run, as a place on the time column.
        charges: The blocks that pay for it, oldest first.
        exhausted: Blocks of its window that cannot pay: the run must leave them out.
        opened: Blocks that have to be opened before it.
    """

    run: int
    at: str
    charges: tuple[str, ...]
    exhausted: tuple[str, ...]
    opened: tuple[str, ...]


@dataclass(frozen=True)
class Outlook:
    """Many future runs.

    Args:
        steps: One for each.
        most: How many runs read the block that most of them read.
        affordable: What one run may cost so that no fresh block is ever exhausted: epsilon.
    """

    steps: tuple[Step, ...]
    most: int
    affordable: float


def continual(
    blocks: Blocks,
    *,
    price: Budget,
    fresh: Budget,
    left: Mapping[str, Budget],
    window: float,
    every: float,
    runs: int,
) -> Outlook:
    """Plan `runs` runs, each on the records of the last `window`, the first one when the present blocks end.

    Args:
        blocks: Those that are open. New ones are as long as the last of them; as `every` if it has no start.
        price: What one run costs each block that it reads.
        fresh: The limit of a new block.
        left: What the open blocks have left, by account.
        window: How far back a run reads; in days where the column holds times.
        every: How long after the one before; the same.
        runs: How many.

    Raises:
        PrivacyError: A window reaches back before the first block.
    """
    checks.count("forecast", runs=runs)
    last = blocks.windows[-1]
    reach, pause = length(window, last.end), length(every, last.end)
    size = pause if last.start is None else distance(last.start, last.end)
    room = {name: budget.times(price) for name, budget in left.items()}
    steps: list[Step] = []
    read: Counter[str] = Counter()
    for number in range(runs):
        at: Point = shifted(last.end, pause, number)
        opened = []
        while before(blocks.windows[-1].end, at):
            blocks = blocks.then(written(shifted(blocks.windows[-1].end, size)))
            opened.append(blocks.windows[-1].name)
            room[opened[-1]] = fresh.times(price)
        asked = blocks.covering(written(shifted(at, reach, -1)), written(at))
        charges = [name for name in asked if room.get(name, 0) > 0]
        for name in charges:
            room[name] -= 1
        read.update(asked)
        exhausted = tuple(name for name in asked if name not in charges)
        steps.append(Step(number + 1, written(at), tuple(charges), exhausted, tuple(opened)))
    most = max(read.values())
    return Outlook(tuple(steps), most, amounts.number(fresh.epsilon // most, amounts.EPSILON))
