"""Messages of a made-up silo, for the attacks that invert gradients: once without the promised noise, once with it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from sordino.audit.promise import Promise
from sordino.audit.subjects.message import NOTHING, Batch, Content, Message, Protection
from sordino.core.seeds import stream
from sordino.core.types import Unit
from sordino.federation.mechanisms import mechanisms
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers.dpsgd import train_private
from sordino.local.trainers.plans import PlainSteps, PrivateSteps
from sordino.local.trainers.sgd import train_plain
from sordino.privacy import events
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise
from sordino.privacy.permits import Line, mint_reservation

CLIP, LR = 1.0, 0.1
SIDE, CLASSES = 8, 4
VOCABULARY, LENGTH, WIDTH = 120, 8, 32
TEXT = ("token_span",)


def leaky(attack: str = "cosine_tv") -> Message:
    """The promise is made and the noise is not there."""
    subject = _of(attack)
    bare = [replace_wire(batch, "run", batch.wires["clip"]) for batch in subject.batches]
    quiet = replace(subject.protection("run"), std=0.0)
    return replace(subject, batches=tuple(bare), protections=(*subject.protections[:-1], quiet))


def sound(attack: str = "cosine_tv") -> Message:
    """Messages as promised."""
    return _of(attack)


def replace_wire(batch: Batch, name: str, wire: np.ndarray) -> Batch:
    """A batch with another message under one protection."""
    return replace(batch, wires={**batch.wires, name: wire})


def _of(attack: str) -> Message:
    if attack in TEXT:
        return of_texts(TinyText(), tokens(4), noise=2.0)
    # Labels are a few large numbers of a message: more noise hides them than hides pixels.
    return of_images(images(16), noise=12.0) if attack == "label_inference" else of_images(images(2), noise=2.0)


def of_images(
    data: tuple[np.ndarray, np.ndarray], model: str = "mlp", keys: dict | None = None, noise: float = 2.0
) -> Message:
    """Messages of one image each, by a small network."""
    module = models.build(model, keys or {"hidden": [32]}).build(InputSpec((1, SIDE, SIDE), CLASSES), seed=1)
    others = images(200, seed=9)[0]
    batches = [(x[None], y[None]) for x, y in zip(*data, strict=True)]
    return message(module, Content.IMAGE, batches, noise, guess=others.mean(0))


def of_texts(module: nn.Module, data: tuple[np.ndarray, np.ndarray], per_batch: int = 1, noise: float = 2.0) -> Message:
    """Messages of a few texts each."""
    parts = zip(*(np.split(part, len(part) // per_batch) for part in data), strict=True)
    return message(module, Content.TEXT, list(parts), noise)


def message(
    module: nn.Module, content: Content, batches: list, noise: float, guess: np.ndarray | None = None
) -> Message:
    """Messages without protection, clipped only, and with the promised noise."""
    records = len(batches[0][1])
    clipped = Protection("clip", "clipping only", math.inf, -1 / LR)
    event = events.gaussian(noise)
    promise = Promise.declared([(event, 1)], 1e-5, by="a made-up silo")
    layout = Layout.of(module)
    return Message(
        promise=promise,
        module=module.eval(),
        layout=layout,
        loss=cross_entropy,
        content=content,
        protections=(
            Protection(NOTHING, "no protection", math.inf, -1 / LR),
            clipped,
            Protection("run", f"ε = {promise.epsilon:.3g}", promise.epsilon, -1 / LR, noise * CLIP / records),
        ),
        audited="run",
        batches=tuple(
            Batch(x, y, _wires(module, layout, x, y, noise, number)) for number, (x, y) in enumerate(batches)
        ),
        public=True,
        guess=guess,
    )


def _wires(
    module: nn.Module, layout: Layout, x: np.ndarray, y: np.ndarray, noise: float, number: int
) -> dict[str, np.ndarray]:
    start = layout.flatten(module)
    plain = objectives.build("plain", {})
    alone = train_plain(module, layout, (x, y, None), start, PlainSteps(LR, steps=1), stream(0, "none"), plain)

    def private(multiplier: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        mechanism = mechanisms.build("gaussian", {"noise_multiplier": multiplier})
        line = Line("a", Unit.RECORD, events.key(mechanism.event()), 1)
        reservation = mint_reservation(f"t{number}", [line], test=True)
        door = Door(mechanism, mechanism.event(), ("a",), reservation, SeededNoise(5))
        steps = PrivateSteps(1, LR, CLIP, "full", float(records))
        return train_private(
            module, layout, (x, y, None), start, steps, release=door, source=SeededNoise(5), objective=plain
        )

    records = len(y)
    # The same noise over no records can be subtracted again.
    bare = private(0.01, x, y) - private(0.01, x[:0], y[:0])
    wires = {NOTHING: alone, "clip": bare, "run": private(noise, x, y)}
    layout.restore(module, start)
    return wires


def images(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Blurred strokes in one of four directions, shapes (count, 1, 8, 8) and (count,)."""
    rng = stream(seed, "images")
    places = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    labels = np.arange(count) % CLASSES
    angles = labels * np.pi / CLASSES
    shift = rng.uniform(-2, 2, size=count)[:, None, None]
    across = np.sin(angles)[:, None, None] * places[0] + np.cos(angles)[:, None, None] * places[1] + shift
    brightness = rng.uniform(0.5, 1, size=(count, 1, 1))
    return (brightness * np.exp(-(across**2)))[:, None].astype(np.float32), labels


def tokens(count: int, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Random texts and the tokens that follow, shapes (count, 8)."""
    drawn = stream(seed, "tokens").integers(1, VOCABULARY, size=(count, LENGTH + 1))
    return drawn[:, :-1], drawn[:, 1:]


class TinyText(nn.Module):
    """Layers of causal attention whose maps of queries and values are trained.

    Args:
        layers: How many.
        train_embeddings: Train the table of embeddings as well.
        rank: Of adapters beside the maps, instead of the maps; 0 for none.
        fresh: The adapters start at B = 0.
    """

    padding = 0

    def __init__(self, *, layers: int = 1, train_embeddings: bool = False, rank: int = 0, fresh: bool = True) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Attention(rank) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        generator = torch.Generator().manual_seed(7)
        for name, parameter in self.named_parameters():
            nn.init.normal_(parameter, std=0.0 if fresh and name.endswith("up.weight") else 0.3, generator=generator)
            trained = "adapters" in name if rank else name.endswith(("query.weight", "value.weight"))
            parameter.requires_grad_(trained or (train_embeddings and name == "embed.weight"))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Attention(nn.Module):
    """One head that looks back."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.adapters = nn.ModuleDict({name: Adapter(rank) for name in ("query", "value") if rank})

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        query, value = (
            getattr(self, name)(x) + (self.adapters[name](x) if name in self.adapters else 0)
            for name in ("query", "value")
        )
        scores = query @ self.key(x).transpose(1, 2) / WIDTH**0.5
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -torch.inf).softmax(-1) @ value


class Adapter(nn.Module):
    """B·A."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, rank, bias=False), nn.Linear(rank, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))
