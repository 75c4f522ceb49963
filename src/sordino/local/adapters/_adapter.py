"""What an adapter file must offer, the registry it enters, and the adapters that are refused with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sordino.core.errors import PrivacyError
from sordino.core.registry import Registry, single
from sordino.local.adapters._base import Base

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sordino.local.models._registry import Shapes


class Adapter(Protocol):
    """An adapter as data: its keys are the fields, `example` a valid table."""

    def plain(self, base: Base) -> bool:
        """Whether the saved adapter runs in plain PEFT, as installed here."""
        ...

    def recomputes(self) -> bool:
        """Whether layers may be computed twice, under gradient checkpointing."""
        ...

    def shapes(self, base: Base) -> Shapes:
        """Names and shapes of the trainable parameters, in the order of the flat vector, without building anything."""
        ...

    def attach(self, network: nn.Module, base: Base, seed: int) -> None:
        """Put the adapter into the frozen network; everything new is drawn from the seed alone."""
        ...

    def context(self, network: nn.Module, base: Base, counted: Tensor) -> dict[str, Any]:
        """What the network is given beside the tokens, of which `counted` (batch, time) marks those before padding."""
        ...

    def active(self, names: tuple[str, ...], round: int, client: int, clients: int) -> tuple[str, ...]:  # noqa: A002 - the word of the glossary
        """The parameters that one client trains in one round; what is not named keeps its value."""
        ...

    def tensors(self, network: nn.Module, base: Base) -> dict[str, Tensor]:
        """What the saved adapter holds, under PEFT's names: made of released and public values only."""
        ...

    def config(self, base: Base) -> Any:
        """The `PeftConfig` that goes with `tensors`."""
        ...


class Whole:
    """The usual answers: every client trains everything in every round, the network sees tokens, PEFT runs the rest."""

    def plain(self, base: Base) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def recomputes(self) -> bool:
        return True

    def context(self, network: nn.Module, base: Base, counted: Tensor) -> dict[str, Any]:  # noqa: ARG002 - as above
        return {}

    def active(self, names: tuple[str, ...], round: int, client: int, clients: int) -> tuple[str, ...]:  # noqa: A002, ARG002 - as above
        return names


adapters: Registry[Adapter] = Registry("adapter")

REFUSED = {
    "fedsa": "keeps each silo's B to itself, trained without noise, and trains the released A through it: one record "
    "then changes every example's gradient, and no clip bounds that",
}
"""Adapters that others offer and that have no sound form at the level of records here."""


def chosen(where: str, table: object) -> Adapter:
    """The one adapter of a table such as `{ lora = { rank = 8 } }`.

    Raises:
        PrivacyError: The adapter is known, and known to void the guarantee.
        ConfigError: There is not exactly one, or its keys are wrong.
    """
    name, keys = single(where, table)
    if name in REFUSED:
        raise PrivacyError.about(
            where,
            REFUSED[name],
            "use `ffa` or `alternating`, where all that is trained is clipped and noised together, or fit B after the "
            "last release",
            adapter=name,
        )
    return adapters.build(name, keys, f"{where}.{name}")
