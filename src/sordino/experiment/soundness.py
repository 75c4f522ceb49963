"""What is refused before anything runs: combinations without a sound guarantee, and keys that would do nothing."""

from __future__ import annotations

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import NoiseAt, Unit
from sordino.experiment import groups, people, released_metrics, summing, zeroth_order
from sordino.experiment.config import Experiment
from sordino.federation.pipeline import Pipeline
from sordino.federation.sampling import Sampler


def check(experiment: Experiment, sampler: Sampler) -> None:
    """Refuse what is not offered, not sound, or silently without effect.

    Raises:
        ConfigError: A combination of unit, place of noise and other keys that is not offered.
        PrivacyError: One that has no sound guarantee; the message says what would be sound.
    """
    if experiment.privacy.noise_at is NoiseAt.SILO and not sampler.public:
        raise PrivacyError.about(
            "sampling",
            "earns nothing with noise at the silo: the coordinator sees who sends",
            "use `all` or `round_robin`",
            sampling=next(iter(experiment.sampling)),
        )
    summing.check(experiment)
    if experiment.privacy.unit is Unit.CLIENT:
        _refuse_for_clients(experiment, sampler)
    else:
        _refuse_for_records(experiment, sampler)


def _refuse_for_records(experiment: Experiment, sampler: Sampler) -> None:
    """Refuse what would leave a record (or person) without noise, and keys that serve whole clients."""
    privacy, local = experiment.privacy, experiment.local
    released_metrics.check(experiment)
    zeroth_order.check(experiment)
    people.check(experiment)
    groups.check(experiment)
    if privacy.noise_at is NoiseAt.COORDINATOR:
        raise PrivacyError.about(
            "privacy", "would send un-noised record gradients", 'use noise_at = "silo"', noise_at="coordinator"
        )
    if privacy.mechanism == "laplace" and local.method == "gradient":
        raise ConfigError.about(
            "privacy",
            "would need L1-clipped gradients, useless in many dimensions",
            'use "gaussian", or method = "zeroth_order"',
            mechanism="laplace",
        )
    if local.clip is None:
        raise ConfigError.about("local", "lacks the key 'clip'", "write e.g. `clip = 0.5`")
    if local.epochs or local.batch_size:
        raise ConfigError.about(
            "local",
            "serve clients as a whole; records are sampled by rate",
            "use steps and batch",
            epochs=local.epochs,
            batch_size=local.batch_size,
        )
    if local.momentum and local.steps == 1:
        raise ConfigError.about(
            "local", "does nothing in a single step", "use [strategy.momentum]", momentum=local.momentum
        )
    if experiment.stages:
        raise ConfigError.about("stages", "act on client updates; records are clipped by local.clip", "drop the stages")
    if privacy.noise_at is NoiseAt.SUM:
        _refuse_unsummed(experiment, sampler)


def _refuse_for_clients(experiment: Experiment, sampler: Sampler) -> None:
    """Refuse what would be ignored where whole clients are protected, and updates that nothing bounds."""
    privacy, local = experiment.privacy, experiment.local
    released_metrics.check(experiment)
    zeroth_order.refuse(experiment)
    people.refuse(experiment)
    groups.refuse(experiment)
    if privacy.noise_at is NoiseAt.SUM and experiment.secure_sum is None:
        raise ConfigError.about("privacy", "needs the table [secure_sum]", "or use coordinator", noise_at="sum")
    pipeline = Pipeline.from_tables(experiment.stages)
    bound = pipeline.bound()
    if privacy.mechanism == "laplace" and bound.l1 is None:
        raise ConfigError.about("privacy", "needs an L1 bound", "use the stage clip_l1", mechanism="laplace")
    if privacy.noise_at is NoiseAt.SILO and pipeline.wire_size(1) != 1:
        raise ConfigError.about(
            "stages",
            "add what only a sum over clients settles",
            "use clip with noise at the silo",
            stages=[name for table in experiment.stages for name in table],
        )
    if not sampler.public and any(silo.epsilon is not None for silo in experiment.silos.values()):
        raise ConfigError.about(
            "silos", "cannot differ where anybody may be drawn: all share one account", "lower privacy.epsilon for all"
        )
    require_step_size(experiment)
    if local.noise_walk is not None:
        raise ConfigError.about("local", "needs noise at the silo or the sum", "use lr", noise_walk=local.noise_walk)
    if local.epochs is not None and local.steps != 1:
        raise ConfigError.about("local", "exclude each other", "give one", steps=local.steps, epochs=local.epochs)
    if local.batch != "full":
        raise ConfigError.about("local", "samples records, not clients", "use batch_size", batch=local.batch)
    if local.clip is not None:
        raise ConfigError.about("local", "clips records, not clients", "use a 'clip' stage", clip=local.clip)
    if experiment.weights == "noise_aware":
        raise ConfigError.about(
            "experiment", "weighs silos by their noise, not clients", "drop it", weights="noise_aware"
        )


def check_without_privacy(experiment: Experiment) -> None:
    """Refuse training without protection on people whose budget is kept.

    Raises:
        PrivacyError: A ledger or a budget is named, which such a run would pass by.
    """
    if experiment.ledger is not None or experiment.budget is not None:
        raise PrivacyError.about(
            "privacy",
            "passes by the ledger that is named",
            "drop `ledger` and [budget], or protect the run",
            non_private=True,
        )
    released_metrics.refuse(experiment)
    zeroth_order.refuse(experiment)
    people.refuse(experiment)
    groups.refuse(experiment)
    require_step_size(experiment)


def require_step_size(experiment: Experiment) -> None:
    """Plain training has no noise for `noise_walk` to take its step size from."""
    if experiment.local.lr is None:
        raise ConfigError.about("local", "lacks the key 'lr'", "noise_walk serves only noise at silo or sum")


def _refuse_unsummed(experiment: Experiment, sampler: Sampler) -> None:
    if not experiment.simulation.secure_sum and experiment.secure_sum is None:
        raise ConfigError.about(
            "privacy",
            "needs secure summation",
            "add [secure_sum] with mechanism = 'skellam', or play it: simulation.secure_sum = true",
            noise_at="sum",
        )
    if not sampler.public or experiment.local.steps != 1:
        raise PrivacyError.about(
            "local", "must be 1 with a public cohort: one noised sum a round", steps=experiment.local.steps
        )
    if experiment.privacy.silos_per_person != 1:
        raise PrivacyError.about(
            "privacy",
            "is needed for one noise on the sum: a person in m silos moves it m times as far",
            "set silos_per_person = 1 if nobody is in two silos, or use noise_at = 'silo'",
            silos_per_person=experiment.privacy.silos_per_person,
        )
    if any(silo.epsilon is not None for silo in experiment.silos.values()):
        raise ConfigError.about("silos", "cannot differ when one noise serves the sum", "drop the silos' epsilon")
