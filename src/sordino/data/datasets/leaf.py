"""LEAF's JSON: FEMNIST, Shakespeare and other sets in that form. Its users become clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.data.characters import ALPHABET, tokens
from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located

WHERE = "dataset.leaf"
SPACE = ALPHABET.index(" ")


@datasets.register("leaf")
@dataclass(frozen=True)
class Leaf:
    """LEAF's JSON files (`users`, `num_samples`, `user_data`), from your own download; users are clients.

    Args:
        path: A .json file, or a folder of them, e.g. LEAF's `data/train`.
        kind: "images": lists of 784 numbers, as FEMNIST has them. "characters": texts of equal length and
            the next character, as Shakespeare has them; a character outside LEAF's alphabet reads as a space.
        classes: Number of classes: FEMNIST's 62 or the alphabet's 80 where None.
    """

    example: ClassVar[dict[str, Any]] = {"path": "femnist/data/train", "kind": "images"}
    source: ClassVar[str] = "Caldas et al. (2018), LEAF, arXiv:1812.01097; your own download"
    licence: ClassVar[str] = "as you obtained it (LEAF's code: BSD-2-Clause)"
    fetch: ClassVar[Archive | None] = None
    path: str | None = None
    kind: Literal["images", "characters"] = "images"
    classes: int | None = None

    def load(self) -> Examples:
        """All users' samples, each user's in the file's order."""
        pairs = list(self._users(located("leaf", self.path)))
        if not pairs:
            raise ConfigError.about(WHERE, "holds no .json file with users", "give LEAF's data/train", path=self.path)
        images = self.kind == "images"
        client = np.repeat([user for user, _, _ in pairs], [len(y) for _, _, y in pairs])
        return Examples(
            x=np.concatenate([x for _, x, _ in pairs]),
            y=np.concatenate([y for _, _, y in pairs]),
            classes=self.classes or (62 if images else len(ALPHABET)),
            client=client,
            user=client,
            public=True,
            source=self.source,
            licence=self.licence,
            vocabulary=None if images else len(ALPHABET),
        ).validated(WHERE)

    def _users(self, path: Path) -> Iterator[tuple[str, NDArray[Any], NDArray[np.int64]]]:
        read = _images if self.kind == "images" else _characters
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            for user, samples in _user_data(file).items():
                yield user, *read(user, samples)


def _user_data(file: Path) -> dict[str, Any]:
    """Samples by user of one file, checked against its own list of users and counts."""
    try:
        content = json.loads(file.read_bytes())
        users = dict(zip(content["users"], content["num_samples"], strict=True))
        data: dict[str, Any] = content["user_data"]
        held = {user: (len(data[user]["x"]), len(data[user]["y"])) for user in users}
    except (ValueError, KeyError, TypeError):
        rule, remedy = "is not LEAF's JSON", "it needs users, num_samples and user_data with x and y"
        raise ConfigError.about(WHERE, rule, remedy, file=file.name) from None
    for user, number in users.items():
        inputs, labels = held[user]
        if not number:
            raise ConfigError.about(WHERE, "holds no samples", "remove the user", user=user)
        if inputs != number or labels != number:
            rule = f"has {inputs} inputs and {labels} labels where num_samples says {number}"
            raise ConfigError.about(WHERE, rule, "get the file again", user=user)
    return {user: data[user] for user in users}


def _images(user: str, samples: dict[str, Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    try:
        x = np.array(samples["x"], np.float32).reshape(len(samples["y"]), 1, 28, 28)
        return x, np.array(samples["y"], np.int64)
    except (ValueError, TypeError):
        raise ConfigError.about(WHERE, "has images that are not 784 numbers each", user=user) from None


def _characters(user: str, samples: dict[str, Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    try:
        x = np.stack([tokens(text) for text in samples["x"]])
        y = tokens("".join(samples["y"]))
    except (ValueError, TypeError, AttributeError):
        rule, remedy = "has texts of unequal length, or inputs that are no texts", "try kind = 'images'"
        raise ConfigError.about(WHERE, rule, remedy, user=user) from None
    if len(y) != len(x) or (y < 0).any():
        raise ConfigError.about(WHERE, "has a label that is not one character of LEAF's alphabet", user=user)
    return np.where(x < 0, SPACE, x), y
