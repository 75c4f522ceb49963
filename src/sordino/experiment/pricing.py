"""What a run costs an account at a noise multiplier: what calibration, guarantees and forecasts all ask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sordino.core.types import Adjacency
from sordino.experiment import accounts as paying
from sordino.experiment import config
from sordino.experiment.config import Experiment
from sordino.privacy.accounting import best_epsilon

if TYPE_CHECKING:
    from sordino.privacy.events import Events


@dataclass(frozen=True)
class Pricing:
    """An experiment with everything else that its price depends on.

    Args:
        experiment: What would run.
        clients: Number of clients, public.
        delta: Failure probability.
        adjacency: The neighbouring relation.
    """

    experiment: Experiment
    clients: int
    delta: float
    adjacency: Adjacency

    def of(self, **values: Any) -> Pricing:
        """The same with some of the experiment changed, as by `config.changed`."""
        return replace(self, experiment=config.changed(self.experiment, **values))

    def events(self, client: int | None, noise_multiplier: float, group: str | None = None) -> Events:
        """Everything the run charges one account, as (event, count); `client` and `group` as in `accounts.Account`."""
        return paying.charged_events(self.experiment, client, noise_multiplier, self.clients, group)

    def epsilon(self, client: int | None, noise_multiplier: float, group: str | None = None) -> float:
        """The price of those events; 0 where there are none."""
        charged = self.events(client, noise_multiplier, group)
        return best_epsilon(charged, self.delta, adjacency=self.adjacency).epsilon if charged else 0.0
