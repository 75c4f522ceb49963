"""The IDX format of MNIST and its relatives: four files of images and labels, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.data.archives import base, named

Part: TypeAlias = Literal["train", "test", "all"]

PREFIX = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def images_and_labels(where: str, path: Path, part: Part) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images in [0, 1] of shape (n, 1, 28, 28) and labels of shape (n,).

    Args:
        where: The data set's name in messages.
        path: A folder or archive that holds the IDX files under their published names.
        part: "train" (train-…), "test" (t10k-…) or "all", train first.

    Raises:
        ConfigError: A file is missing, broken or of the wrong shape.
    """
    names = [f"{prefix}-{kind}" for prefix in PREFIX[part] for kind in KINDS]
    arrays = [parsed(where, name, content) for name, content in named(where, path, names, _plain).items()]
    for images, labels in zip(arrays[::2], arrays[1::2], strict=True):
        _check(where, images, labels)
    x = np.concatenate(arrays[::2])[:, None].astype(np.float32) / np.float32(255)
    return x, np.concatenate(arrays[1::2]).astype(np.int64)


def parsed(where: str, name: str, content: bytes) -> NDArray[np.uint8]:
    """The array in one IDX file of unsigned bytes, gzipped or not.

    The header: two zero bytes, the type (8 = unsigned byte), the number of dimensions, then
    each length as four bytes, the most significant first.

    >>> parsed("mine", "labels", bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    array([7, 2, 1], dtype=uint8)
    """
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as problem:
            raise ConfigError.about(where, f"is broken ({problem})", "get it again", file=name) from None
    if content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise ConfigError.about(where, "is no IDX file of bytes", "give the published file", file=name)
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    if len(content) - start != math.prod(shape):
        rule = f"has {len(content) - start} bytes of data where its header says {math.prod(shape)}"
        raise ConfigError.about(where, rule, "get it again", file=name)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _plain(name: str) -> str:
    """A member's published name, whether gzipped, and with `.` for `-` as some tools unpack it."""
    return base(name).removesuffix(".gz").replace(".idx", "-idx")


def _check(where: str, images: NDArray[Any], labels: NDArray[Any]) -> None:
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise ConfigError.about(where, f"has images of shape {images.shape[1:]}", "they must be (28, 28)")
    if labels.shape != images.shape[:1]:
        raise ConfigError.about(where, f"has {len(images)} images but labels of shape {labels.shape}")
