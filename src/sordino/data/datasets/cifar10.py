"""CIFAR-10 in both of its published formats: Python pickles and binary records."""

from __future__ import annotations

import io
import pickle  # read through an unpickler that admits arrays only
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.data.archives import base, named
from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive, located

Batch: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pixels, shape (n, 3072), and labels, shape (n,)."""

WHERE = "dataset.cifar10"
PIXELS = 3 * 32 * 32
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}


@datasets.register("cifar10")
@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10: 50,000 + 10,000 colour photographs of 32 x 32 pixels, from your own download.

    Args:
        path: The published archive, or the folder it unpacks to (`cifar-10-batches-py` or `-bin`).
        part: "train" (all five data batches) or "test".
    """

    example: ClassVar[dict[str, Any]] = {"path": "cifar-10-batches-py"}
    source: ClassVar[str] = "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images"
    licence: ClassVar[str] = "none stated by the author; research use by custom"
    fetch: ClassVar[Archive | None] = None
    path: str | None = None
    part: Literal["train", "test"] = "train"

    def load(self) -> Examples:
        """Images of shape (n, 3, 32, 32) in [0, 1]."""
        path = located("cifar10", self.path, self.fetch)
        found = named(WHERE, path, BATCHES[self.part], lambda name: base(name).removesuffix(".bin"))
        batches = [_batch(name, content) for name, content in found.items()]
        pixels = np.concatenate([batch[0] for batch in batches]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([batch[1] for batch in batches])
        x = pixels.astype(np.float32) / np.float32(255)
        examples = Examples(x, labels, classes=10, public=True, source=self.source, licence=self.licence)
        return examples.validated(WHERE)


def _batch(name: str, content: bytes) -> Batch:
    """Protocol 2 begins with byte 128, a binary record with its label, below 10."""
    return _pickled(name, content) if content.startswith(b"\x80") else _binary(name, content)


def _binary(name: str, content: bytes) -> Batch:
    """Records of one label byte and 3,072 pixel bytes, red, green and blue planes in turn."""
    if not content or len(content) % (PIXELS + 1):
        rule = f"has {len(content)} bytes, not a multiple of {PIXELS + 1}"
        raise ConfigError.about(WHERE, rule, "get it again", file=name)
    records = np.frombuffer(content, np.uint8).reshape(-1, PIXELS + 1)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _pickled(name: str, content: bytes) -> Batch:
    """A dictionary with `data`, (n, 3072) bytes, and `labels`, as Python 2 wrote it."""
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
        data, labels = np.asarray(batch["data"]), np.asarray(batch["labels"], np.int64)
    except ConfigError:
        raise
    # A file that is no pickle can raise nearly anything.
    except Exception as problem:  # noqa: BLE001
        raise ConfigError.about(WHERE, f"is no CIFAR-10 batch ({problem})", "get it again", file=name) from None
    if data.dtype != np.uint8 or data.shape != (len(labels), PIXELS):
        rule = f"has data of shape {data.shape} and {len(labels)} labels, not (n, {PIXELS}) bytes"
        raise ConfigError.about(WHERE, rule, "get it again", file=name)
    return data, labels


class _ArraysOnly(pickle.Unpickler):
    """Builds arrays and plain values; a pickle that names anything else is refused before it runs."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        raise ConfigError.about(WHERE, f"names {module}.{name}, which a CIFAR-10 batch never does", "do not use it")


def _latin1(text: str, encoding: str) -> bytes:
    """How protocol 2 spells bytes when Python 3 writes it."""
    if encoding != "latin1":
        raise ConfigError.about(WHERE, f"uses the encoding {encoding!r}, which a CIFAR-10 batch never does")
    return text.encode("latin1")
