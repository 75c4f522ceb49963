"""What the inversions of images and table rows report: likeness under every protection, beside two controls.

guess of the mean record ──► what needs no message at all: below it nothing was rebuilt
no protection            ──► the attack at its best: if it fails there, its failure elsewhere says nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from sordino.audit.attacks._pictures import psnr, require_extra, sheet, ssim, window
from sordino.audit.findings import Figure, Finding, Grade, Picture, Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Batch, Content, Message

MARGIN_DB = 3.0
"""A record counts as rebuilt when half of the guess's squared error is gone."""

SHOWN = 8
"""Records on a contact sheet."""

DOES_NOT_SHOW = (
    "That a run is safe where the attack fails: inversion dies at a noise multiplier of 0.1, where epsilon is 284. "
    "One step over very few records was attacked; more messages about the same records average their noise down. "
    "Success contradicts no promise by itself"
)

Rebuilt = Mapping[str, Sequence[NDArray[np.float64]]]
"""By the protection's name, reconstructions of each batch, of the shape of its records."""


def require_numbers(message: Message) -> None:
    """Refuse text, whose records are no numbers to be approached; and what could not be reported.

    Raises:
        DoesNotFit: The records are text, or they are images and the `audit` extra is missing.
    """
    if message.content is Content.TEXT:
        raise DoesNotFit("the records are texts: token_span attacks those.")
    if message.content is Content.IMAGE:
        require_extra()


def report(attack: str, message: Message, batches: Sequence[Batch], rebuilt: Rebuilt) -> Finding:
    """The finding of an inversion.

    Args:
        attack: Its registered name.
        message: What was attacked.
        batches: Those of its batches that were attacked.
        rebuilt: What came out.
    """
    found = {
        name: [_matched(batch.x, part) for batch, part in zip(batches, parts, strict=True)]
        for name, parts in rebuilt.items()
    }
    guess = np.zeros(batches[0].x.shape[1:]) if message.guess is None else message.guess
    found["baseline"] = [np.broadcast_to(guess, batch.x.shape) for batch in batches]
    truth = np.concatenate([batch.x for batch in batches])
    joined = {name: np.concatenate(list(parts)) for name, parts in found.items()}
    # Over all records at once: a mean of decibels would be decided by one lucky record.
    figures = {f"psnr {name}": Figure(psnr(truth, parts, message.box)) for name, parts in joined.items()}
    if message.content is Content.IMAGE:
        figures |= {f"ssim {name}": Figure(_ssim(truth, parts, message.box)) for name, parts in joined.items()}
    level = {name: figures[f"psnr {name}"].value for name in found}
    return Finding(
        attack=attack,
        grade=Grade.LEAKAGE,
        verdict=_verdict(message, level),
        says=_says(message, level),
        does_not_show=DOES_NOT_SHOW,
        promise=message.promise,
        figures=figures,
        pictures=_sheet(attack, message, truth, joined, level),
        local=not message.public,
    )


def _ssim(truth: NDArray[np.float64], found: NDArray[np.float64], box: tuple[float, float]) -> float:
    """The mean over records."""
    return float(np.mean([ssim(one, other, box) for one, other in zip(truth, found, strict=True)]))


def _verdict(message: Message, level: Mapping[str, float]) -> Verdict:
    if _rebuilt(level, message.audited):
        return Verdict.LEAKS
    return Verdict.HOLDS if _rebuilt(level, NOTHING) else Verdict.SKIPPED


def _rebuilt(level: Mapping[str, float], name: str) -> bool:
    return level[name] >= level["baseline"] + MARGIN_DB


def _says(message: Message, level: Mapping[str, float]) -> str:
    protection = message.protection(message.audited)
    guess, plain = f"guessing the mean record gives {level['baseline']:.1f} dB", f"{level[NOTHING]:.1f} dB"
    if not _rebuilt(level, message.audited) and not _rebuilt(level, NOTHING):
        return (
            f"The attack fails here even without any protection ({plain}; {guess}), so it says nothing about this run."
        )
    reached = f"{level[message.audited]:.1f} dB; {guess}"
    if not _rebuilt(level, message.audited):
        return (
            f"Messages under {protection.label} do not give records back: {reached}. "
            f"The same attack reaches {plain} without any protection."
        )
    clip = f" Clipping alone leaves {level['clip']:.1f} dB." if "clip" in level else ""
    return f"Whoever receives messages under {protection.label} rebuilds records: {reached}.{clip}"


def _matched(truth: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reconstructions in the order of the records: a mean gradient does not tell which came first."""
    if len(truth) == 1:
        return found
    errors = ((truth[:, None] - found[None]) ** 2).reshape(len(truth), len(found), -1).mean(axis=-1)
    ordered: NDArray[np.float64] = found[linear_sum_assignment(errors)[1]]
    return ordered


def _sheet(
    attack: str,
    message: Message,
    truth: NDArray[np.float64],
    found: Mapping[str, NDArray[np.float64]],
    level: Mapping[str, float],
) -> tuple[Picture, ...]:
    """Truth, then what each protection leaves of it, one row each."""
    if message.content is not Content.IMAGE:
        return ()
    rows = [list(part[:SHOWN]) for part in (truth, *(found[protection.name] for protection in message.protections))]
    labels = ", ".join(f"{protection.label} ({level[protection.name]:.1f} dB)" for protection in message.protections)
    caption = (
        f"From the top: the records, then what {attack} makes of their messages under {labels}. "
        f"SSIM over windows of {window(truth.shape)} pixels a side."
    )
    return (sheet(f"{attack.replace('_', '-')}.png", caption, rows, message.box),)
