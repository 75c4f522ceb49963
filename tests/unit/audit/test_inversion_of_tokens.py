"""The span check: all tokens of a text without noise, none with it, and none that are not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sordino.audit.attacks._prefix import in_place
from sordino.audit.attacks._span import Spans
from sordino.audit.attacks.token_span import TokenSpan
from sordino.audit.findings import Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING
from sordino.core.seeds import stream
from worlds import message as world


def run(subject):
    return TokenSpan().run(subject, lambda _: None)


def values(subject):
    return {name: figure.value for name, figure in run(subject).figures.items()}


@pytest.mark.parametrize("per_batch", [1, 2])
def test_full_maps_tell_nearly_all_tokens_and_clipping_changes_nothing(per_batch):
    figures = values(world.of_texts(world.TinyText(), world.tokens(4 * per_batch), per_batch))
    for name in (NOTHING, "clip"):
        assert figures[f"recall {name}"] >= 0.6
        assert figures[f"precision {name}"] >= 0.98
        assert figures[f"top-k recall {name}"] >= 0.8
    assert "precision run" not in figures
    assert figures["top-k recall run"] <= 3 * figures["top-k recall by chance"]


def test_adapters_tell_through_b_in_round_1_when_their_rank_exceeds_the_number_of_tokens():
    fresh = values(world.of_texts(world.TinyText(rank=24), world.tokens(4)))
    assert fresh["recall clip"] >= 0.6
    assert fresh["precision clip"] >= 0.98


def test_a_small_rank_leaves_nothing_certain_in_round_1_but_ranks_tokens_later():
    fresh = values(world.of_texts(world.TinyText(rank=4), world.tokens(4)))
    later = values(world.of_texts(world.TinyText(rank=4, fresh=False), world.tokens(4)))
    assert fresh["recall clip"] == 0
    assert later["top-k recall clip"] > 4 * later["top-k recall by chance"]


def test_trained_embeddings_are_the_set_of_tokens():
    subject = world.of_texts(world.TinyText(train_embeddings=True), world.tokens(4))
    only = replace(
        subject,
        layout=type(subject.layout)(subject.layout.groups[:1], subject.layout.shapes[:1]),
        batches=tuple(
            replace(batch, wires={name: wire[: world.VOCABULARY * world.WIDTH] for name, wire in batch.wires.items()})
            for batch in subject.batches
        ),
    )
    figures = values(only)
    assert subject.layout.groups[0].name == "embed.weight"
    assert figures["recall clip"] == figures["precision clip"] == 1.0
    assert figures["recall run"] == 0


def test_noise_alone_names_no_token():
    """Two hundred messages of nothing but noise: the exact check is silent, with the stated false-alarm rate."""
    subject = world.of_texts(world.TinyText(), world.tokens(1))
    spans, protection, rng = Spans.of(subject, 128), subject.protection("run"), stream(0, "noise only")
    named = 0
    for _ in range(200):
        noise = rng.normal(size=subject.layout.size) * protection.std / protection.scale
        batch = replace(subject.batches[0], wires={**subject.batches[0].wires, "run": noise.astype(np.float32)})
        named += bool(spans.answer(subject, batch, protection).found)
    assert named <= 2


def test_texts_that_were_not_sent_are_not_found():
    """Negative control: messages of other texts, without noise."""
    subject = world.of_texts(world.TinyText(), world.tokens(4))
    others = world.of_texts(world.TinyText(), world.tokens(4, seed=11))
    mixed = tuple(replace(a, wires=b.wires) for a, b in zip(subject.batches, others.batches, strict=True))
    finding = run(replace(subject, batches=mixed))
    assert finding.verdict is Verdict.SKIPPED
    assert finding.figures["top-k recall none"].value < 0.3


def test_the_number_of_directions_follows_the_known_noise():
    """The same noised messages, said to have none: every direction then counts, and nothing is told any more."""
    subject = world.of_texts(world.TinyText(), world.tokens(4), noise=1e-3)
    assert values(subject)["recall run"] > 0.3
    deaf = replace(subject.protection("run"), std=0.0)
    assert values(replace(subject, protections=(*subject.protections[:-1], deaf)))["recall run"] == 0


def test_images_have_no_tokens():
    with pytest.raises(DoesNotFit, match="no texts"):
        run(world.sound("cosine_tv"))


def test_a_model_that_trains_nothing_next_to_the_tokens_does_not_fit():
    module = world.TinyText()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    with pytest.raises(DoesNotFit, match="no span"):
        run(world.of_texts(module, world.tokens(1)))


@pytest.mark.parametrize(("per_batch", "least"), [(1, 1.0), (2, 0.7)])
def test_texts_come_out_in_order_where_the_next_layer_is_trained(per_batch, least):
    """A second layer's inputs depend on all tokens before: whole texts without noise, none with it."""
    figures = values(world.of_texts(world.TinyText(layers=2), world.tokens(2 * per_batch), per_batch))
    assert figures["in place clip"] >= least
    assert figures["in place run"] == 0.0


def test_one_layer_tells_tokens_and_not_their_order():
    assert values(world.of_texts(world.TinyText(), world.tokens(2)))["in place clip"] == 0.0


def test_tokens_are_counted_at_their_own_place_in_their_own_text():
    truth = np.array([[1, 2, 3], [4, 5, 0]])
    assert in_place(truth, [(4, 5), (1, 3, 2)], padding=0) == (3, 5)
    assert in_place(truth, [], padding=0) == (0, 5)
    assert in_place(truth, [(1, 2, 3)], padding=None) == (3, 6)
