"""Inversion of images: exact without noise, nothing under noise, and never safe because the attack was weak."""

from __future__ import annotations

import importlib
import io
from dataclasses import replace

import numpy as np
import pytest
import torch

from sordino.audit.attacks import attacks
from sordino.audit.attacks._gradients import gradients_of
from sordino.audit.attacks._inversion import MARGIN_DB, _matched, report
from sordino.audit.attacks._pictures import psnr, sheet, ssim
from sordino.audit.findings import Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Content
from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from worlds import message as world

IMAGE_ATTACKS = ("linear_inversion", "dlg", "cosine_tv")


def attacked(name, subject, **keys):
    return attacks.build(name, keys).run(subject, lambda _: None)


def values(finding):
    return {name: figure.value for name, figure in finding.figures.items()}


@pytest.fixture(scope="module")
def subject():
    return world.sound("cosine_tv")


def test_the_attackers_gradient_is_what_the_trainer_sent(subject):
    batch = subject.batches[0]
    x, y = torch.from_numpy(batch.x[None]).double(), torch.from_numpy(batch.y[None])
    own = gradients_of(subject)(x, y)[0].numpy()
    sent = subject.gradient(batch, subject.protection(NOTHING))
    assert np.abs(own - sent).max() < 1e-5 * np.abs(own).max()


def test_several_batches_have_each_their_own_gradient(subject):
    data = world.images(6)
    x = torch.from_numpy(data[0]).double().reshape(3, 2, 1, world.SIDE, world.SIDE)
    y = torch.from_numpy(data[1]).reshape(3, 2)
    gradients = gradients_of(subject)
    together = gradients(x, y)
    alone = torch.cat([gradients(x[i : i + 1], y[i : i + 1]) for i in range(3)])
    assert torch.allclose(together, alone, rtol=1e-10, atol=1e-14)


def test_a_linear_layer_gives_the_record_exactly_and_clipping_changes_nothing(subject):
    figures = values(attacked("linear_inversion", subject))
    assert figures["psnr none"] >= 60
    assert figures["psnr clip"] >= 60
    assert figures["ssim clip"] > 0.999
    assert figures["psnr run"] < figures["psnr baseline"]


def test_direction_survives_clipping_and_length_does_not(subject):
    """An audit with DLG alone would call clipping safe."""
    direction = values(attacked("cosine_tv", subject))
    length = values(attacked("dlg", subject, steps=40))
    assert direction["psnr none"] >= 25
    assert direction["psnr clip"] >= 25
    assert length["psnr none"] >= 25
    assert length["psnr clip"] < 25
    for figures in (direction, length):
        assert figures["psnr run"] < figures["psnr baseline"]


@pytest.mark.parametrize("attack", IMAGE_ATTACKS)
def test_a_failing_control_is_no_safety(subject, attack):
    """Where the attack fails without protection too, nothing is said about the run."""
    rng = stream(0, "nonsense")
    nonsense = tuple(
        replace(
            batch, wires={name: rng.normal(size=wire.shape).astype(np.float32) for name, wire in batch.wires.items()}
        )
        for batch in subject.batches
    )
    keys = {} if attack == "linear_inversion" else {"steps": 5}
    finding = attacked(attack, replace(subject, batches=nonsense), **keys)
    assert finding.verdict is Verdict.SKIPPED
    assert "nothing about this run" in finding.says


def test_the_verdict_turns_at_the_margin(subject):
    """Positive and negative control of the gate itself: reconstructions of known quality."""
    truth = [batch.x.astype(float) for batch in subject.batches]
    guess = np.mean([psnr(x, np.broadcast_to(subject.guess, x.shape), subject.box) for x in truth])

    def verdict(level):
        noise = 10 ** (-level / 20)
        signs = np.where(np.indices(truth[0].shape).sum(0) % 2, 1, -1)
        wide = replace(subject, box=(-5.0, 6.0))
        error = [x + noise * 11 * signs for x in truth]
        return report("dlg", wide, subject.batches, {NOTHING: truth, "run": error, "clip": truth}).verdict

    wide_guess = guess + 20 * np.log10(11)
    assert verdict(wide_guess + MARGIN_DB + 0.1) is Verdict.LEAKS
    assert verdict(wide_guess + MARGIN_DB - 0.1) is Verdict.HOLDS


def test_a_finding_says_that_failure_is_no_evidence_and_keeps_private_records_local(subject):
    finding = attacked("linear_inversion", replace(subject, public=False))
    assert "safe where the attack fails" in finding.does_not_show
    assert "284" in finding.does_not_show
    assert finding.local
    assert not attacked("linear_inversion", subject).local


def test_reconstructions_of_a_batch_are_matched_to_their_records():
    truth = world.images(3)[0]
    order = [2, 0, 1]
    assert np.array_equal(_matched(truth, truth[order]), truth)


def test_the_first_of_several_records_is_not_read_off(subject):
    data = world.images(4)
    pair = (data[0].reshape(2, 2, 1, 8, 8), data[1].reshape(2, 2))
    several = world.message(subject.module, Content.IMAGE, list(zip(*pair, strict=True)), 2.0, guess=subject.guess)
    with pytest.raises(DoesNotFit, match="several records"):
        attacked("linear_inversion", several)
    assert values(attacked("cosine_tv", several))["psnr clip"] > 20


def test_psnr_is_that_of_its_definition():
    rng = stream(1, "psnr")
    truth, found = rng.uniform(size=(2, 50))
    assert psnr(truth, found, (0, 1)) == pytest.approx(-10 * np.log10(((truth - found) ** 2).mean()))
    assert psnr(truth, truth, (0, 1)) == 120.0
    assert psnr(2 * truth - 1, 2 * found - 1, (-1, 1)) == pytest.approx(psnr(truth, found, (0, 1)))
    assert psnr(truth, truth + 5 * (truth == truth.max()), (0, 1)) > 20  # what leaves the box is clamped first


def test_ssim_is_1_for_itself_and_less_for_noise():
    image = world.images(1)[0][0]
    assert ssim(image, image, (0, 1)) == pytest.approx(1.0)
    assert ssim(image, stream(0, "x").uniform(size=image.shape), (0, 1)) < 0.3


def test_a_sheet_shows_what_it_was_given():
    image = pytest.importorskip("PIL.Image")
    black, white = np.zeros((1, 8, 8)), np.ones((1, 8, 8))
    png = sheet("x.png", "two rows", [[black, white], [white, white]], (0.0, 1.0)).png
    pixels = np.asarray(image.open(io.BytesIO(png)))
    assert pixels.shape == (200, 200, 3)
    assert (pixels[2:98, 2:98].max(), pixels[2:98, 102:198].min(), pixels[102:198, 2:98].min()) == (0, 255, 255)


def test_a_missing_extra_is_named_before_anything_is_computed(subject, monkeypatch):
    real = importlib.import_module

    def without(name, *rest):
        if name.startswith("skimage"):
            raise ModuleNotFoundError(name=name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(DoesNotFit, match=r"skimage.*sordino\[audit\]"):
        attacked("cosine_tv", subject)


def test_a_network_whose_first_layer_is_a_convolution_has_no_linear_layer_to_read():
    with pytest.raises(DoesNotFit, match="no linear layer"):
        attacked(
            "linear_inversion", world.of_images(world.images(1), "cnn", {"channels": [2], "kernel": 3, "hidden": 4})
        )


def test_texts_are_left_to_the_span_check():
    with pytest.raises(DoesNotFit, match="token_span"):
        attacked("dlg", world.sound("token_span"))


def test_messages_without_their_control_are_refused(subject):
    with pytest.raises(ConfigError, match="control first"):
        replace(subject, protections=subject.protections[1:])
    with pytest.raises(ConfigError, match="lacks a batch"):
        replace(subject, batches=())
