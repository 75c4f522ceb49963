"""What all settings with noise in shares have: each silo's masked part, and the sum that only all of them give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sordino.core.errors import EngineError
from sordino.core.types import RoundPlan, Vector
from sordino.experiment import summing
from sordino.experiment.settings.setup import Cohort, Setting, Setup, paid
from sordino.federation.engines import Summing
from sordino.federation.secure import Terms
from sordino.federation.secure.encoding import Encoding
from sordino.privacy import shares
from sordino.privacy.permits import Line, Reservation

if TYPE_CHECKING:
    from sordino.privacy.kernel import BoundedSum


@dataclass(frozen=True)
class SharedSum(Setting):
    """train → clip → whole numbers → + share of noise → mask; the sum is opened by those who are in it.

    Guarantee: against whoever sees only sums, and against the coordinator with the declared share of the silos, if
    secure summation holds (`sordino.federation.secure`). Noise is sized for the honest among the fewest that may
    remain.
    """

    setup: Setup

    def lines(self, cohort: Cohort) -> list[Line]:
        return self.setup.lines(cohort, 1)

    def release(self, plan: RoundPlan, cohort: Cohort, model: Vector, reservation: Reservation | None) -> Vector:
        setup = self.setup

        def share(client: int, start: Vector) -> shares.Share:
            return self.share(client, start, plan, reservation)

        members = [int(client) for client in cohort]
        sums, after = self.sums(plan, members), replace(plan, round=plan.round + 1)
        following = self.sums(after, members) if after.round < after.rounds else None
        words = setup.engine.summed(plan, Summing(sums, share, following), model)
        return self.opened(self.encoding(sums.txid).decode(words), cohort)

    def share(self, client: int, start: Vector, plan: RoundPlan, reservation: Reservation | None) -> shares.Share:
        """One silo's part of the sum, sealed: it leaves masked or not at all.

        Args:
            client: The silo's position.
            start: The model. Shape (d,).
            plan: The round.
            reservation: The charge for it: the federation's, or the silo's own.
        """
        setup, charge = self.setup, paid(reservation)
        account = setup.account(client)
        door = shares.ShareDoor(
            mechanism=summing.mechanism(setup.experiment, account.noise_multiplier),
            encoding=self.encoding(self.txid(plan)),
            honest=summing.honest(setup.experiment),
            charged=setup.charged(account),
            accounts=tuple(own.name for own in setup.accounts(client)),
            reservation=charge,
            source=setup.source,
        )
        name = setup.population.names[client]
        part: Callable[[BoundedSum], shares.Share] = door.parts([name])[name]
        return part(self.total(client, start, plan))

    def txid(self, plan: RoundPlan) -> str:
        """The name of the round's charge, and of its sum."""
        return f"{self.setup.plan.run}/{plan.round}"

    def sums(self, plan: RoundPlan, members: list[int]) -> Terms:
        """The terms of the round's sum, which every silo works out for itself."""
        txid = self.txid(plan)
        return summing.terms(self.setup.experiment, txid, members, self.encoding(txid).length)

    def encoding(self, txid: str) -> Encoding:
        """How vectors become whole numbers in this round."""
        found = summing.encoding(self.setup.experiment, self.setup.plan.accounts[0].noise_multiplier, self.clip())
        return found.at(txid)

    def clip(self) -> float | None:
        """The bound of this round, where it is not the experiment's own."""
        return None

    def total(self, client: int, start: Vector, plan: RoundPlan) -> BoundedSum:
        """A silo's clipped sum, private."""
        raise NotImplementedError

    def opened(self, total: Vector, cohort: Cohort) -> Vector:  # noqa: ARG002 - for those that divide
        """What is released of an opened sum."""
        return total


def shared(setting: Setting) -> SharedSum:
    """The setting, if its silos send masked shares.

    Raises:
        EngineError: They send something else.
    """
    if not isinstance(setting, SharedSum):
        raise EngineError.about("setting", "has no secure sum", "ask for what the plan says")
    return setting
