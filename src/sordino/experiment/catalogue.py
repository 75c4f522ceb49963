"""Everything an experiment file can name, read from the registries, so that it cannot drift."""

from __future__ import annotations

import json
from typing import Any

from sordino.audit.attacks import attacks
from sordino.core.registry import Registry
from sordino.data import datasets, partitions
from sordino.federation.aggregators import aggregators
from sordino.federation.engines import engines
from sordino.federation.mechanisms import mechanisms
from sordino.federation.sampling import samplers
from sordino.federation.stages import stages
from sordino.federation.strategies import strategies
from sordino.local.adapters import adapters
from sordino.local.models import models
from sordino.local.objectives import objectives

REGISTRIES: dict[str, Registry[Any]] = {
    "datasets": datasets,
    "partitions": partitions,
    "models": models,
    "adapters": adapters,
    "objectives": objectives,
    "sampling": samplers,
    "stages": stages,
    "aggregators": aggregators,
    "mechanisms": mechanisms,
    "strategies": strategies,
    "engines": engines,
    "attacks": attacks,
}


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Per registry: name, first docstring line, an example's keys, and the same as TOML."""
    return {kind: [_entry(registry, name) for name in registry.names()] for kind, registry in REGISTRIES.items()}


def _entry(registry: Registry[Any], name: str) -> dict[str, Any]:
    example = dict(getattr(registry.get(name), "example", {}))
    return {"name": name, "summary": registry.summary(name), "example": example, "toml": f"{name} = {_inline(example)}"}


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return json.dumps(value)
