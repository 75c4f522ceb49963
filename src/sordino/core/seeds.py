"""Named streams of ordinary randomness: initialisation, partitions, shuffles, splits.

Noise and cohort sampling never come from here: whoever knows the seed could subtract the
noise or list the cohort (see `sordino.privacy.noise`).
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """An independent generator for one purpose and index.

    The same arguments give the same stream on every machine; a different purpose or index
    gives an unrelated one, so adding a draw in one place never shifts another.

    Args:
        seed: The experiment's seed, >= 0.
        purpose: What the draws are for, e.g. "partition".
        index: Round, silo or step numbers.

    >>> int(stream(1, "split", 0).integers(100) - stream(1, "split", 0).integers(100))
    0
    """
    # The number of indices is part of the name: numpy pads with zeros, so (…) and (…, 0) would be one stream.
    name = int.from_bytes(hashlib.sha256(f"{purpose}/{len(index)}".encode()).digest()[:8], "big")
    return np.random.default_rng(np.random.SeedSequence([seed, name, *index]))
