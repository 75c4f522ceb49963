"""C15: secure summation gives the plain sum, loses no noise, and its masks hide."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sordino.audit.conformance.checks import check
from sordino.audit.conformance.limits import attempt, quietly
from sordino.audit.conformance.measure import Bench
from sordino.audit.conformance.protocol import Masks, NotApplicable, Sums
from sordino.audit.conformance.verdicts import Outcome, Result
from sordino.core.seeds import stream

WORDS = 8
"""A key of 32 bytes is so many words of 32 bits."""


@check("C15", "secure summation: the plain sum, and masks that hide")
def secure(bench: Bench) -> Iterator[Outcome]:
    """The decoded sum with and without dropouts; masks of keys that differ a little."""
    if not isinstance(bench.target, (Sums, Masks)):
        raise NotApplicable("it has no secure summation")
    if isinstance(bench.target, Sums):
        yield from _sums(bench, bench.target)
    if isinstance(bench.target, Masks):
        yield _masks(bench.target)


def _sums(bench: Bench, target: Sums) -> Iterator[Outcome]:
    rng = stream(0, "secure sums")
    updates = [(rng.normal(size=50) * bench.claim.clip / 10).astype(np.float32) for _ in range(bench.claim.cohort)]
    for case, missing in (("everybody answers", []), ("one drops out", [1])):
        tried = attempt(lambda missing=missing: target.secure_sum(updates, missing, 1))  # type: ignore[misc]
        if tried.value is None:
            yield Outcome(result=Result.REFUSED, case=case, evidence=tried.says)
            continue
        plain = np.sum([update for i, update in enumerate(updates) if i not in missing], axis=0)
        away = float(np.abs(tried.value - plain).max())
        yield Outcome(
            result=Result.PASS if away <= 0.05 * bench.claim.clip else Result.FAIL,
            case=case,
            evidence=f"the decoded sum is within {away:.2g} of the plain one",
            numbers={"away": away},
            shows="from sordino.audit.conformance.checks.secure import secure\nprint(*secure(bench))",
        )


def _masks(target: Masks) -> Outcome:
    """Keys that differ in any way must give unrelated masks."""
    key = bytes(stream(0, "keys").integers(256, size=4 * WORDS, dtype=np.uint8))
    with quietly():
        mask = np.asarray(target.mask(key, 64))
        same = [what for what, changed in _changed(key).items() if np.array_equal(target.mask(changed, 64), mask)]
    return Outcome(
        result=Result.FAIL if same else Result.PASS,
        case="masks depend on the whole key",
        evidence=f"the same mask from another key: {', '.join(same)}" if same else "every change of the key shows",
        numbers={"collisions": len(same)},
        shows="from sordino.audit.conformance.checks.secure import _masks\nprint(_masks(target))",
    )


def _changed(key: bytes) -> dict[str, bytes]:
    """The key with small changes: bits, words swapped, two words changed alike."""
    words = np.frombuffer(key, np.uint32)

    def with_words(change: object) -> bytes:
        copy = words.copy()
        change(copy)  # type: ignore[operator]
        return copy.tobytes()

    def one_bit(copy: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
        copy[3] ^= np.uint32(1)

    def two_alike(copy: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
        copy[2] ^= np.uint32(1 << 7)
        copy[5] ^= np.uint32(1 << 7)

    def swapped(copy: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
        copy[[0, 4]] = copy[[4, 0]]

    return {
        "one bit flipped": with_words(one_bit),
        "the same bit flipped in two words": with_words(two_alike),
        "two words swapped": with_words(swapped),
        "reversed": key[::-1],
    }
