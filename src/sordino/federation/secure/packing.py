"""Whole numbers of `bits` bits each, without gaps: eight of them fill exactly `bits` bytes.

3 bits, little end first:   byte 0 = c₂c₂b₂ b₁b₀…   i.e. number j begins at bit 3·j of the row
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError

Numbers = NDArray[np.uint64]


def packed_bytes(size: int, bits: int) -> int:
    """Bytes that `size` numbers take."""
    return -(-size * bits // 8)


def pack(values: Numbers, bits: int) -> bytes:
    """The numbers, each below 2^bits, as bytes.

    >>> pack(np.array([1, 2, 3], dtype=np.uint64), 4).hex()
    '2103'
    """
    rows = -(-len(values) // 8)
    lanes = np.zeros((rows, 8), dtype=np.uint64)
    lanes.reshape(-1)[: len(values)] = values
    packed = np.zeros((rows, bits), dtype=np.uint8)
    for lane in range(8):
        column = np.ascontiguousarray(lanes[:, lane])
        for byte, shift in _overlaps(lane, bits):
            part = column >> np.uint64(shift) if shift >= 0 else column << np.uint64(-shift)
            packed[:, byte] |= part.astype(np.uint8)  # keeps the lowest eight bits
    return packed.tobytes()[: packed_bytes(len(values), bits)]


def unpack(data: bytes, size: int, bits: int) -> Numbers:
    """The inverse of `pack`.

    Raises:
        EngineError: It has another length, or bits set behind the last number.
    """
    if len(data) != packed_bytes(size, bits):
        raise EngineError.about("secure", f"must be {packed_bytes(size, bits)} bytes", bytes=len(data))
    rows = -(-size // 8)
    packed = np.zeros(rows * bits, dtype=np.uint8)
    packed[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    columns = packed.reshape(rows, bits)
    lanes = np.zeros((rows, 8), dtype=np.uint64)
    for lane in range(8):
        for byte, shift in _overlaps(lane, bits):
            part = columns[:, byte].astype(np.uint64)
            lanes[:, lane] |= part << np.uint64(shift) if shift >= 0 else part >> np.uint64(-shift)
    lanes &= np.uint64(2**bits - 1)
    if lanes.reshape(-1)[size:].any():
        raise EngineError.about("secure", "has bits behind its last number", size=size)
    return lanes.reshape(-1)[:size].copy()


def _overlaps(lane: int, bits: int) -> list[tuple[int, int]]:
    """The bytes that a lane touches, and how far each lies above the lane's first bit."""
    first, last = lane * bits, (lane + 1) * bits - 1
    return [(byte, 8 * byte - first) for byte in range(first // 8, last // 8 + 1)]
