"""A data set's records in the form that the model takes, or one made-up record where nobody has the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.registry import single
from sordino.data import datasets
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData
from sordino.data.pretrained import located
from sordino.data.texts import Texts
from sordino.data.tokenise import encode
from sordino.experiment.config import Experiment
from sordino.local.models import InputSpec, TextInput, models


def read(experiment: Experiment, here: Mapping[str, Any], silo: str | None) -> Examples:
    """The records of the experiment's data.

    Args:
        experiment: What is wanted.
        here: Options of the data set that hold on a silo's machine, such as its `path`.
        silo: Whose machine this is; None where it is nobody's in particular.

    Raises:
        ConfigError: They cannot be read.
        PrivacyError: On a silo's machine, the experiment names a file.
    """
    name, options = single("data", experiment.data)
    return in_form(experiment, datasets.build(name, _here(options, here, silo), f"data.{name}").load())


def stand_in(experiment: Experiment) -> Examples:
    """One made-up record of the form that the experiment's data declare.

    Raises:
        ConfigError: The data set is one that everybody can load, or the form is not all declared.
    """
    name, options = single("data", experiment.data)
    dataset = datasets.build(name, options, f"data.{name}")
    if not hasattr(dataset, "stand_in"):
        raise ConfigError.about("silos", f"are known from the data of {name!r}, which everybody has", "drop records")
    return in_form(experiment, dataset.stand_in())


def test_data(experiment: Experiment, known: Examples) -> FederatedData:
    """The data set that an experiment names to test on, as one client.

    Args:
        experiment: What is wanted.
        known: Records to train on, whose form it must have.

    Raises:
        ConfigError: It cannot be read, or has another form.
    """
    name, options = single("evaluation.data", experiment.evaluation.data or {})
    examples = in_form(experiment, datasets.build(name, options, f"evaluation.data.{name}").load())
    if (examples.shape, examples.classes, examples.vocabulary) != (known.shape, known.classes, known.vocabulary):
        raise ConfigError.about(
            "evaluation.data",
            f"has records of shape {examples.shape} and {examples.classes} classes, "
            f"the training data {known.shape} and {known.classes}",
            "test on data of the same kind",
            name=name,
        )
    return FederatedData(examples, ("test",), (np.arange(len(examples.y)),))


@contextmanager
def untold(silo: str) -> Iterator[None]:
    """Read a silo's own file without telling others what is wrong in it: such a message may quote a record.

    Raises:
        PrivacyError: Whatever is wrong.
    """
    try:
        yield
    except ConfigError:
        raise PrivacyError.about(
            f"silo {silo!r}", "cannot use its own data as asked", "`sordino silo census FOLDER FILE` says there why"
        ) from None


def in_form(experiment: Experiment, loaded: Examples | Texts) -> Examples:
    """Texts as tokens of the model; anything else as it is.

    Raises:
        ConfigError: A model of texts and other data, or the other way round.
    """
    text = _text_input(experiment)
    if isinstance(loaded, Texts) != (text is not None):
        raise ConfigError.about(
            "model",
            "reads texts" if text is not None else "does not read texts",
            "use data of text with text_classifier or causal_lm, and other data with other models",
        )
    if isinstance(loaded, Examples) or text is None:
        return cast("Examples", loaded)
    return encode(loaded, located(text.base), length=text.length, task=text.task)


def spec_of(experiment: Experiment, examples: Examples) -> InputSpec:
    """What one record looks like to the model: shape, classes and vocabulary, no values."""
    text = _text_input(experiment)
    return InputSpec(
        shape=examples.shape,
        classes=examples.classes,
        vocabulary=examples.vocabulary,
        padding=examples.padding,
        folder=None if text is None else str(located(text.base)),
        per_position=examples.y.ndim > 1,
    )


def _here(options: Mapping[str, Any], here: Mapping[str, Any], silo: str | None) -> dict[str, Any]:
    """A data set's options on a silo's machine: which of its files are read is for the silo to say."""
    if silo is not None and "path" in options and "path" not in here:
        raise PrivacyError.about(
            f"silo {silo!r}", "is named by the experiment, not by the silo", "set [data] in its site.toml", path="…"
        )
    return {**options, **here}


def _text_input(experiment: Experiment) -> TextInput | None:
    """How the model wants its text, if it reads any."""
    name, options = single("model", experiment.model)
    return getattr(models.build(name, options, f"model.{name}"), "text", None)
