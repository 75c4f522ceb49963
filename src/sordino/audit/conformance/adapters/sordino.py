"""Our own mechanisms: the stages, engines, doors and ledger that a run uses, with updates that are given."""

from __future__ import annotations

from sordino.audit.conformance.adapters._books import Books
from sordino.audit.conformance.adapters._clients import AdaptiveClients, Clients, LocalClients
from sordino.audit.conformance.adapters._records import Records, Summed
from sordino.audit.conformance.protocol import Target
from sordino.local.clipping import engines

CLIP = {"clip": {"norm": 1.0}}
WEIGHT = {"weight": {"cap": 1}}


def targets() -> list[Target]:
    """Every setting, every stage that clips, every clipping engine and rule."""
    return [
        Clients("client at coordinator, clip", (CLIP,)),
        Clients("client at coordinator, weight and clip", (WEIGHT, CLIP)),
        Clients("client at coordinator, clip_per_layer", ({"clip_per_layer": {"norm": 1.0}},)),
        Clients("client at coordinator, clip_l1 and Laplace", ({"clip_l1": {"norm": 1.0}},), mechanism="laplace"),
        AdaptiveClients("client at coordinator, adaptive_clip", (WEIGHT, {"adaptive_clip": {"norm": 1.0}})),
        LocalClients("client at silo", (CLIP,), local=True),
        *(Records(f"record at silo, {engine}", engine) for engine in engines.names()),
        Records("record at silo, per layer", rule="per_layer"),
        Records("record at silo, automatic", rule="automatic"),
        Summed("record at sum"),
        Books("ledger"),
    ]
