"""How like a record a reconstruction is, and a sheet on which a person sees it."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.audit.findings import Picture
from sordino.audit.subjects import DoesNotFit

MOST_DB = 120.0
"""Reported where a reconstruction is exact: an error of 1e-6 of the range."""

TILE = 96
"""Pixels of a record's longer side on a sheet."""


def psnr(truth: NDArray[Any], found: NDArray[Any], box: tuple[float, float]) -> float:
    """Peak signal-to-noise ratio in dB, of values clamped to the box: 20 log10(range / root mean square error).

    >>> psnr(np.zeros(4), np.full(4, 0.1), (0.0, 1.0))
    20.0
    """
    low, high = box
    error = np.mean((np.clip(truth, low, high) - np.clip(found, low, high)) ** 2) / (high - low) ** 2
    return float(min(MOST_DB, -10.0 * np.log10(max(error, 1e-300))))


def ssim(truth: NDArray[Any], found: NDArray[Any], box: tuple[float, float]) -> float:
    """Mean structural similarity of two images (channels, height, width) over windows of `window` pixels a side.

    Source: Wang et al. (2004), by scikit-image.
    """
    low, high = box
    value = _extra("skimage.metrics").structural_similarity(
        np.clip(truth, low, high).astype(np.float64),
        np.clip(found, low, high).astype(np.float64),
        data_range=high - low,
        win_size=window(truth.shape),
        channel_axis=0,
    )
    return float(value)


def window(shape: Sequence[int]) -> int:
    """Side of the windows: 7 pixels, or the largest odd number that fits the image.

    >>> window((1, 28, 28)), window((3, 6, 9))
    (7, 5)
    """
    side = min(shape[-2:])
    return min(7, side - 1 + side % 2)


def sheet(name: str, caption: str, rows: Sequence[Sequence[NDArray[Any]]], box: tuple[float, float]) -> Picture:
    """A contact sheet: images (channels, height, width), one row of them under another."""
    image = _extra("PIL.Image")
    tiles = np.concatenate([np.concatenate([_tile(part, box) for part in row], axis=1) for row in rows], axis=0)
    written = io.BytesIO()
    image.fromarray(tiles).save(written, format="PNG", optimize=True)
    return Picture(name, caption, written.getvalue())


def _tile(part: NDArray[Any], box: tuple[float, float]) -> NDArray[np.uint8]:
    """An image of bytes with a margin, enlarged without blurring."""
    low, high = box
    levels = np.clip((part - low) / (high - low), 0, 1)
    colours = levels if len(levels) == 3 else np.repeat(levels[:1], 3, axis=0)
    bytes_ = np.rint(255 * np.moveaxis(colours, 0, -1)).astype(np.uint8)
    factor = max(1, TILE // max(bytes_.shape[:2]))
    large = bytes_.repeat(factor, axis=0).repeat(factor, axis=1)
    return np.pad(large, ((2, 2), (2, 2), (0, 0)), constant_values=255)


def require_extra() -> None:
    """Refuse before anything costly is done.

    Raises:
        DoesNotFit: The `audit` extra is not installed.
    """
    for module in ("PIL.Image", "skimage.metrics"):
        _extra(module)


def _extra(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise DoesNotFit(f"scoring images needs {missing.name}: pip install 'sordino[audit]'.") from None
