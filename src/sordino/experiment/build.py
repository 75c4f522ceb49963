"""From a plan to the moving parts of a run. The first place that needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sordino.core.errors import ConfigError
from sordino.core.registry import single
from sordino.core.types import Unit, Vector
from sordino.experiment import encrypting
from sordino.experiment.company import company
from sordino.experiment.config import Experiment
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.rounds import Books, Loop, State
from sordino.experiment.settings import Setup
from sordino.federation.averaging import TailAverage
from sordino.federation.engines import engines
from sordino.federation.strategies import Strategy, strategies
from sordino.local.models import models
from sordino.local.objectives import objectives
from sordino.privacy.noise import NoiseSource, SeededNoise, SystemNoise


@dataclass(frozen=True)
class Built:
    """The fixed parts, and the model that the first round starts from."""

    setup: Setup
    strategy: Strategy
    start: Vector

    def loop(self, books: Books, run: str, save: Callable[[State], None], seen: Callable[[State], None]) -> Loop:
        """The round loop over these parts."""
        average = TailAverage(self.setup.experiment.average)
        return Loop(self.setup, self.strategy, average, books, run, save, seen)


def build(plan: Plan, population: Population, *, probe: bool = True, together: bool = True) -> Built:
    """Build model, objective, strategy and engine, and probe the model before it touches data.

    Args:
        plan: What runs.
        population: The data it was planned for.
        probe: Try the model on made-up records first.
        together: Find out how the clients train fastest in one process.

    Raises:
        ConfigError: The `train` extra is missing, or a part's options are wrong.
        PrivacyError: Records of a batch influence each other, so no clip could bound one of them.
    """
    experiment = plan.experiment
    try:
        from sordino.local.clipping import engines as clipping_engines
        from sordino.local.layout import Layout
        from sordino.local.losses import cross_entropy
        from sordino.local.probe import probe as probe_model
        from sordino.local.probe import synthetic
        from sordino.local.state import classify, refuse_private_dependence
    except ImportError as missing:
        raise ConfigError.about("run", f"needs {missing.name}", "pip install 'sordino[train]'") from None
    name, options = single("model", experiment.model)
    description = models.build(name, options, f"model.{name}")
    module = description.build(population.spec, experiment.seed)
    layout = Layout.of(module)
    if probe and plan.private:
        probe_model(module, cross_entropy, *synthetic(population.spec))
        refuse_private_dependence(experiment.privacy.unit, classify(module, layout))
    name, options = single("objective", experiment.objective)
    objective = objectives.build(name, options, f"objective.{name}")
    clipping = clipping_engines.build(experiment.local.engine, passes_of(experiment, population))
    stack, twin = company(plan, population, module, clipping) if together else (None, None)
    setup = Setup(
        plan=plan,
        population=population,
        module=module,
        layout=layout,
        objective=objective,
        clipping=clipping,
        engine=encrypting.around(plan, engines.build("inprocess", {})),
        source=source_of(experiment),
        stack=stack,
        twin=twin,
        description=description if hasattr(description, "trained") else None,
    )
    start = layout.flatten(module).astype(np.float32)
    if probe and plan.private:
        rehearse(setup)
        layout.restore(module, start)
    return Built(setup, strategy_of(experiment), start)


def passes_of(experiment: Experiment, population: Population) -> dict[str, int]:
    """How many records the clipping engine takes at once, from public numbers only; see `sordino.local.passes`."""
    from sordino.local.passes import likely

    local, options = experiment.local, {}
    if local.engine == "oracle":  # one at a time, whatever is asked
        return {}
    if local.micro_batch is not None:
        options["chunk"] = local.micro_batch
    if experiment.privacy.unit is Unit.RECORD and not experiment.privacy.non_private:
        most = max(population.units)
        options["rows"] = most if local.rate == 1 else likely(most * local.rate)
    return options


def rehearse(setup: Setup) -> None:
    """Try the clipping engine on made-up records, so that a model it cannot take is refused before anything is charged.

    Parameters that are trained in later rounds, or by other silos, are tried when their turn comes.
    """
    from sordino.local.clipping import Clip
    from sordino.local.losses import cross_entropy
    from sordino.local.probe import synthetic

    privacy, start = setup.experiment.privacy, setup.layout.flatten(setup.module)
    if privacy.non_private or privacy.unit is Unit.CLIENT or setup.experiment.local.method != "gradient":
        return
    with setup.training(setup.part(0, 0), start):
        setup.clipping.clipped_sum(setup.module, cross_entropy, synthetic(setup.population.spec), Clip(1.0))


def strategy_of(experiment: Experiment) -> Strategy:
    """The experiment's server step."""
    name, options = single("strategy", experiment.strategy)
    return strategies.build(name, options, f"strategy.{name}")


def source_of(experiment: Experiment) -> NoiseSource:
    """The system's noise, unless a seeded one was asked for by name."""
    seed = experiment.simulation.noise_seed
    return SystemNoise() if seed is None else SeededNoise(seed)
