"""Whom to ask: frameworks by name, or anybody's own `module:factory`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from sordino.audit.conformance.protocol import Target
from sordino.core.checks import nearest
from sordino.core.errors import ConfigError

ADAPTERS = "sordino.audit.conformance.adapters"
EXTRAS = {
    "sordino": "pip install 'sordino[train]'",
    "opacus": "pip install 'sordino[train]'",
    "flower": "pip install 'flwr[dp]==1.42.*', in an environment of its own",
    "nvflare": "pip install nvflare==2.9.*, in an environment of its own",
    "pfl": "pip install pfl==0.6.*, in an environment of its own (it excludes flwr's and our dp-accounting)",
}
"""Frameworks with an adapter here, and what each needs."""


def load(spec: str) -> dict[str, Target]:
    """The targets behind a name, by their own names.

    Args:
        spec: One of `EXTRAS`, or `module:factory`: a function without arguments that returns one target or several.

    Raises:
        ConfigError: There is no such name, module or function, or the framework is not installed.
    """
    module, _, factory = (f"{ADAPTERS}.{spec}:targets" if spec in EXTRAS else spec).partition(":")
    if not factory:
        raise ConfigError.about("conformance", nearest(spec, EXTRAS), "or give module:factory", target=spec)
    make = _factory(spec, module, factory)
    made = make()
    listed = list(made) if isinstance(made, Iterable) else [made]
    if not listed or not all(hasattr(one, "claim") and hasattr(one, "release") for one in listed):
        raise ConfigError.about(
            "conformance", "gives no targets", "see sordino.audit.conformance.protocol", target=spec
        )
    return {one.name: one for one in listed}


def _factory(spec: str, module: str, factory: str) -> Callable[[], Target | Iterable[Target]]:
    here = str(Path.cwd())
    if here not in sys.path:  # the command's own start does not put it there
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), factory)
    except ImportError as missing:
        raise ConfigError.about(
            "conformance", f"cannot be asked: {missing.name or missing} is missing", EXTRAS.get(spec, ""), target=spec
        ) from None
    except AttributeError:
        raise ConfigError.about("conformance", f"has no {factory!r}", target=spec) from None
    if not callable(found):
        raise ConfigError.about("conformance", "is no function", "give one that returns targets", target=spec)
    return cast("Callable[[], Target | Iterable[Target]]", found)
