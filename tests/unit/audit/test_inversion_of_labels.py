"""Labels from the last layer's gradient: exact without noise, in any batch; never found where they are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sordino.audit.attacks.label_inference import LabelInference, labels
from sordino.audit.findings import Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Content
from sordino.core.seeds import stream
from worlds import message as world


def run(subject):
    return LabelInference().run(subject, lambda _: None)


def said(subject, name):
    protection = subject.protection(name)
    return [labels(subject, subject.gradient(batch, protection), len(batch.y)) for batch in subject.batches]


@pytest.fixture(scope="module")
def subject():
    return world.sound("label_inference")


def test_labels_of_single_records_are_exact_with_and_without_a_clip(subject):
    truth = [batch.y.tolist() for batch in subject.batches]
    assert said(subject, NOTHING) == truth
    assert said(subject, "clip") == truth


@pytest.mark.parametrize("per_batch", [2, 4])
def test_labels_of_several_records_are_counted(subject, per_batch):
    x, _ = world.images(16)
    y = stream(3, "labels").integers(world.CLASSES, size=16)
    shaped = [(x[i : i + per_batch], y[i : i + per_batch]) for i in range(0, 16, per_batch)]
    several = world.message(subject.module, Content.IMAGE, shaped, 1.0)
    for name in (NOTHING, "clip"):
        right = [
            (Counter(each) & Counter(batch.y.tolist())).total()
            for each, batch in zip(said(several, name), several.batches, strict=True)
        ]
        assert sum(right) >= 15, name


def test_two_classes_have_one_logit():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
    data = world.images(8)[0], np.arange(8) % 2
    batches = [(x[None], y[None]) for x, y in zip(*data, strict=True)]
    assert said(world.message(module, Content.IMAGE, batches, 1.0), "clip") == [[y] for y in data[1]]


def test_a_layer_without_bias_tells_by_its_rows():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, world.CLASSES, bias=False))
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1, generator=generator)
    batches = [(x[None], y[None]) for x, y in zip(*world.images(8), strict=True)]
    found = said(world.message(module, Content.IMAGE, batches, 1.0), "clip")
    assert found == [[y] for y in world.images(8)[1]]


def test_permuted_labels_are_not_found(subject):
    """Negative control: the same messages, with labels that they were not made of."""
    others = stream(1, "permuted").permutation([batch.y for batch in subject.batches])
    permuted = tuple(replace(batch, y=y) for batch, y in zip(subject.batches, others, strict=True))
    finding = run(replace(subject, batches=permuted))
    assert finding.verdict is not Verdict.LEAKS
    assert finding.figures["accuracy none"].value < 0.6


def test_labels_that_are_all_alike_prove_nothing(subject):
    """Always right about the only label there is: a constant guess would be too."""
    alike = tuple(batch for batch in subject.batches if batch.y[0] == 1)
    finding = run(replace(subject, batches=alike))
    assert finding.figures["accuracy none"].value == 1.0
    assert finding.verdict is Verdict.SKIPPED


def test_the_verdict_has_a_confidence_and_accuracy_an_interval(subject):
    finding = run(subject)
    assert finding.confidence == 0.999
    figure = finding.figures["accuracy run"]
    assert figure.low < figure.value < figure.high


def test_tokens_are_left_to_the_span_check():
    with pytest.raises(DoesNotFit, match="token_span"):
        run(world.sound("token_span"))
