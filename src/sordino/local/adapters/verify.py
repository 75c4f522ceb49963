"""Checks on what leaves: every trained tensor moved, the saved adapter is the trained one, and holds no more than that.

seed ─► fresh module ─┐
released vector ──────┴─► the tensors it would save == the saved file, name by name, byte by byte
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sordino.core.errors import PrivacyError, VerificationError
from sordino.core.seeds import stream
from sordino.core.types import Group, Vector

if TYPE_CHECKING:
    from torch import Tensor

    from sordino.local.models._language import LanguageModel
    from sordino.local.models._registry import InputSpec

TOLERANCE = 1e-4
"""Difference of logits, relative to the largest, that another order of the same sums explains."""


@dataclass(frozen=True)
class Exported:
    """One tensor of a saved adapter.

    Args:
        name: Under which it is saved.
        sha256: Of its values.
        origin: `released` is one trained tensor as it is; `derived` is computed from released and public ones;
            `public` follows from the seed and the base alone.
    """

    name: str
    sha256: str
    origin: Literal["released", "derived", "public"]


@dataclass(frozen=True)
class Reloaded:
    """How a saved adapter was loaded again, and the largest difference of a logit.

    Args:
        by: `peft`, or `sordino` where plain PEFT does not run this kind of adapter.
        difference: Relative to the largest logit.
    """

    by: Literal["peft", "sordino"]
    difference: float


def check_moved(names: Iterable[str], before: Vector, after: Vector, groups: Sequence[Group]) -> None:
    """Refuse a first private step that left a trained tensor as it was, or made one not finite.

    Noise moves every released coordinate, so a tensor that stands still is one that the step never reached: an
    optimizer or hook that holds a stale copy, as in opacus#820.

    Args:
        names: The tensors that were trained in the step.
        before: The flat vector before it.
        after: The flat vector after it.
        groups: Where each tensor lies in the vector.

    Raises:
        PrivacyError: A tensor did not move, is not finite, or is not in the vector.

    >>> a, b = np.zeros(4, np.float32), np.array([1, 1, 0, 0], np.float32)
    >>> check_moved(["x"], a, b, [Group("x", 0, 2), Group("y", 2, 4)])
    """
    places = {group.name: slice(group.start, group.stop) for group in groups}
    names = tuple(names)
    if lost := [name for name in names if name not in places]:
        raise PrivacyError.about(
            "adapter", "are trained but not in the vector", "attach before taking the layout", names=lost
        )
    if wild := [name for name in names if not np.isfinite(after[places[name]]).all()]:
        raise PrivacyError.about("adapter", "are not finite after the first private step", "lower the rate", names=wild)
    if still := [name for name in names if np.array_equal(before[places[name]], after[places[name]])]:
        raise PrivacyError.about(
            "adapter",
            "did not move in the first private step",
            "place the model on its device before the adapter is attached, and keep no copies of its parameters",
            names=still,
        )


def check_reloads(module: LanguageModel, folder: Path, spec: InputSpec, *, seed: int = 0) -> Reloaded:
    """Refuse a saved adapter that, loaded on the plain base, gives other logits than the module. Touches no data.

    Args:
        module: The trained module.
        folder: Where it was saved.
        spec: The records' shape, with the folder of the base.
        seed: Of the synthetic tokens.

    Raises:
        VerificationError: Logits differ by more than `TOLERANCE`.
    """
    import torch

    tokens, counted = _synthetic(spec, seed)
    mode = module.training
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers and PEFT warn of each other's releases
        expected = module.eval()(tokens.to(next(module.parameters()).device)).cpu()
        module.train(mode)
        by: Literal["peft", "sordino"] = "peft" if module.adapter.plain(module.base) else "sordino"
        logits = (_by_peft if by == "peft" else _by_sordino)(module, folder, spec, tokens, counted)
    rows = counted if module.base.task == "continue" else slice(None)
    difference = float((logits[rows] - expected[rows]).abs().max() / expected[rows].abs().max())
    if not difference <= TOLERANCE:
        raise VerificationError.about(
            "adapter",
            "gives other logits than the module it was saved from",
            "do not publish it",
            difference=difference,
        )
    return Reloaded(by, difference)


def check_exported(fresh: LanguageModel, released: Vector, folder: Path) -> tuple[Exported, ...]:
    """Refuse a saved adapter that holds anything but what follows from the released vector, the seed and the base.

    Args:
        fresh: A module built anew from the public seed; it gets the released parameters.
        released: The flat vector that left through the door.
        folder: Where the adapter was saved.

    Returns:
        What was saved, by name.

    Raises:
        PrivacyError: A tensor is missing, is one too many, or has other values.

    Guarantee:
        The file is a function of public values and of the released vector: it costs no privacy beyond the release.
    """
    from safetensors.torch import load_file

    from sordino.local.layout import Layout

    layout = Layout.of(fresh)
    saved = {name: _sha256(tensor) for name, tensor in load_file(folder / "adapter_model.safetensors").items()}
    layout.restore(fresh, released + 1)
    elsewhere = {name: _sha256(tensor) for name, tensor in fresh.tensors().items()}
    layout.restore(fresh, released)
    expected = {name: _sha256(tensor) for name, tensor in fresh.tensors().items()}
    if wrong := sorted(name for name in expected.keys() | saved.keys() if expected.get(name) != saved.get(name)):
        raise PrivacyError.about(
            "adapter", "is not what the released parameters make of it", "do not publish it", tensors=wrong
        )
    parts = {hashlib.sha256(released[group.start : group.stop].tobytes()).hexdigest() for group in layout.groups}

    def origin(name: str) -> Literal["released", "derived", "public"]:
        if expected[name] == elsewhere[name]:
            return "public"
        return "released" if expected[name] in parts else "derived"

    return tuple(Exported(name, expected[name], origin(name)) for name in sorted(expected))


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.float().numpy().tobytes()).hexdigest()


def _synthetic(spec: InputSpec, seed: int) -> tuple[Tensor, Tensor]:
    """Random texts of different lengths, and which of their tokens count."""
    import torch

    rng, (time,) = stream(seed, "reload"), spec.shape
    vocabulary = spec.vocabulary or 1
    tokens = torch.from_numpy(rng.integers(vocabulary, size=(4, time)))
    lengths = torch.tensor([time, max(1, time // 2), max(1, time - 1), 1])
    counted = torch.arange(time) < lengths[:, None]
    if spec.padding is None:
        return tokens, torch.ones_like(counted)
    tokens[tokens == spec.padding] = (spec.padding + 1) % vocabulary
    return tokens.where(counted, torch.tensor(spec.padding)), counted


def _by_peft(module: LanguageModel, folder: Path, spec: InputSpec, tokens: Tensor, counted: Tensor) -> Tensor:
    from sordino.local.adapters._torch import peft
    from sordino.local.models._language import plain

    network = peft().PeftModel.from_pretrained(plain(module.base, spec, quantise=module.quantise), str(folder)).eval()
    logits: Tensor = network(input_ids=tokens, attention_mask=counted.long()).logits
    return logits


def _by_sordino(module: LanguageModel, folder: Path, spec: InputSpec, tokens: Tensor, _: Tensor) -> Tensor:
    from safetensors.torch import load_file

    from sordino.local.models._language import language_model

    # Another seed: whatever the file does not bring shows.
    again = language_model(module.base, module.adapter, spec, seed=1, quantise=module.quantise).eval()
    places: dict[str, Any] = again.adapter.tensors(again.network, again.base)
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        places[name].copy_(tensor)
    return again(tokens)  # type: ignore[no-any-return]
