"""What silos release, summed under homomorphic encryption: which experiments may ask for it, and what is agreed on.

release (noise at the silo, charged) ──► encrypt ──► coordinator adds ──► two silos open the sum ──► the same mean

The table [homomorphic] changes who sees what, and no price: whatever it hides was released before.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sordino.core.errors import ConfigError
from sordino.core.types import NoiseAt, RoundPlan
from sordino.experiment.config import Experiment
from sordino.federation.engines import Engine
from sordino.federation.engines.encrypted import Encrypted
from sordino.federation.secure.homomorphic import MOST, Terms

if TYPE_CHECKING:
    from sordino.experiment.plan import Plan


def check(experiment: Experiment, silos: int) -> None:
    """Refuse what would rest on encryption, and what it does not fit.

    Raises:
        ConfigError: The table [homomorphic] is there, and the experiment is not one for it.
    """
    if experiment.homomorphic is None:
        return
    privacy, sampling = experiment.privacy, next(iter(experiment.sampling))
    if privacy.non_private or privacy.noise_at is not NoiseAt.SILO:
        raise ConfigError.about(
            "homomorphic",
            "would be all that protects the updates: whoever holds the one key reads them",
            'use it with noise_at = "silo", or use [secure_sum]',
            noise_at=str(privacy.noise_at),
            non_private=privacy.non_private,
        )
    if sampling != "all":
        raise ConfigError.about(
            "homomorphic", "needs the same silos in every sum", "use sampling.all", sampling=sampling
        )
    if experiment.local.method != "gradient":
        raise ConfigError.about("homomorphic", "sums whole updates", 'use "gradient"', method=experiment.local.method)
    if not 2 <= silos <= MOST:
        raise ConfigError.about(
            "homomorphic", f"is for 2 to {MOST} silos: all of them hold one key", "use [secure_sum]", silos=silos
        )


def terms(plan: Plan, announced: RoundPlan, size: int) -> Terms:
    """What everybody works out for himself of a round's sum.

    Args:
        plan: Has the table [homomorphic].
        announced: The round.
        size: How long an update is.
    """
    table = plan.experiment.homomorphic
    if table is None:
        raise ConfigError.about("homomorphic", "is not in this plan", plan=plan.digest[:16])
    return Terms(f"{plan.run}/{announced.round}", len(plan.clients), size, table.bits)


def around(plan: Plan, engine: Engine) -> Engine:
    """The engine, with what clients send under a key of this run where the plan asks for it."""
    if plan.experiment.homomorphic is None:
        return engine
    return Encrypted(engine, partial(terms, plan))


def bare(engine: Engine) -> Engine:
    """The engine without encryption, for whoever looks at what each client releases."""
    return engine.inner if isinstance(engine, Encrypted) else engine
