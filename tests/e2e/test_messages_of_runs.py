"""Messages of a run's silo for the inversion attacks: what the run would send, at its noise, charged to nobody."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from whole_runs import ran

from sordino.audit.attacks import attacks
from sordino.audit.findings import Verdict
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import NOTHING, Content
from sordino.core.seeds import stream
from sordino.experiment.audits._wires import Wire, single_step
from sordino.experiment.audits.message import subject
from sordino.experiment.audits.opening import open_run
from sordino.experiment.settings.record_at_silo import steps_of
from sordino.privacy.kernel import GRID_BITS

CLIENTS = [
    "rounds=2",
    "privacy.unit=client",
    "privacy.epsilon=400",
    "local.clip=1.0",
    "local.lr=0.1",
    "stages=[{clip={norm=1.0}}]",
]


@dataclass(frozen=True)
class Sent:
    audited: object
    message: object


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    """A small run on the four hospitals, and its messages."""
    from tiny_heart import HEART

    file = tmp_path_factory.mktemp("run") / "heart.toml"
    file.write_text(HEART, encoding="utf-8")
    audited = open_run(ran(file).folder)
    return Sent(audited, subject(audited))


def estimates(message, name):
    """The attacker's gradients under a protection, shape (messages, d)."""
    protection = message.protection(name)
    return np.stack([message.gradient(batch, protection) for batch in message.batches])


def test_protections_run_from_none_to_the_strongest(hospital):
    message = hospital.message
    assert [p.name for p in message.protections] == [NOTHING, "clip", "epsilon-4", "run", "epsilon-2", "epsilon-1"]
    assert message.audited == "run"
    stds = [p.std for p in message.protections]
    assert stds == sorted(stds)
    assert message.promise is hospital.audited.promise
    assert message.content is Content.TABLE
    assert message.public


def test_noise_is_what_the_plan_says_and_the_message_says_what_it_is(hospital):
    message, audited = hospital.message, hospital.audited
    account = audited.built.setup.account(audited.client)
    steps = steps_of(audited.built.setup, audited.client)
    assert message.protection("run").std == pytest.approx(account.noise_multiplier * steps.clip)
    noise = estimates(message, "run") - estimates(message, "clip")
    # 480 draws: the standard deviation of their spread is 3 %.
    assert noise.std() == pytest.approx(message.protection("run").std, rel=0.12)
    assert len(np.unique(noise.round(6))) == noise.size  # no two messages share their noise


def test_clipped_messages_keep_direction_and_bound(hospital):
    message, clip = hospital.message, 0.3
    raw, bounded = estimates(message, NOTHING), estimates(message, "clip")
    norms = np.linalg.norm(bounded, axis=1)
    assert norms.max() <= clip * (1 + 1e-5)
    cosine = (raw * bounded).sum(1) / norms / np.linalg.norm(raw, axis=1)
    assert cosine.min() > 1 - 1e-6


def test_no_message_is_charged_to_the_run(hospital):
    ledger = hospital.audited.folder.ledger
    before = hashlib.sha256(ledger.read_bytes()).hexdigest()
    again = subject(hospital.audited)
    assert hashlib.sha256(ledger.read_bytes()).hexdigest() == before
    for one, other in zip(again.batches, hospital.message.batches, strict=True):
        assert all(np.array_equal(one.wires[name], other.wires[name]) for name in one.wires)


def test_messages_do_not_change_with_the_shared_module(hospital):
    """Other attacks retrain the run's one module: the messages keep a copy at their own parameters."""
    setup, message = hospital.audited.built.setup, hospital.message
    setup.layout.restore(setup.module, np.full(setup.layout.size, 7.0, np.float32))
    try:
        assert np.array_equal(message.layout.flatten(message.module), hospital.audited.built.start)
    finally:
        setup.layout.restore(setup.module, hospital.audited.built.start)


def test_attacks_give_records_back_without_protection_and_not_from_the_run(hospital):
    for name in ("linear_inversion", "cosine_tv"):
        finding = attacks.example(name).run(hospital.message, lambda _: None)
        assert finding.verdict is Verdict.HOLDS, finding
        assert finding.figures["psnr none"].value > 60
        assert finding.figures["psnr clip"].value > 60
        assert not finding.pictures


def test_a_silo_that_forgot_its_noise_is_caught(hospital):
    """The broken twin: the run's messages without their noise, under the same promise."""
    bare = tuple(replace(b, wires={**b.wires, "run": b.wires["clip"]}) for b in hospital.message.batches)
    finding = attacks.example("linear_inversion").run(replace(hospital.message, batches=bare), lambda _: None)
    assert finding.verdict is Verdict.LEAKS


def test_without_privacy_the_plain_message_is_audited(heart):
    file_overrides = ("privacy.non_private=true", "local.lr=0.5")
    text = (
        heart.read_text().replace("epsilon = 2.0\n", "").replace("noise_walk = 0.9\n", "").replace("clip = 0.3\n", "")
    )
    heart.write_text(text)
    message = subject(open_run(ran(heart, *file_overrides).folder))
    assert message.audited == NOTHING
    assert message.promise is None
    assert [p.name for p in message.protections] == [NOTHING, "clip", "epsilon-4", "epsilon-2", "epsilon-1"]
    assert attacks.example("linear_inversion").run(message, lambda _: None).verdict is Verdict.LEAKS


def test_what_a_trusted_coordinator_receives_has_no_noise(heart):
    text = heart.read_text().replace("noise_walk = 0.9\n", "").replace("silos_per_person = 1\n", "")
    heart.write_text(text.replace("clip = 0.3\n", ""))
    run = ran(heart, *CLIENTS[:3], *CLIENTS[4:], 'privacy.noise_at="coordinator"')
    message = subject(open_run(run.folder))
    assert message.audited == "clip"
    assert "trusted coordinator" in message.protection("clip").label
    assert attacks.example("linear_inversion").run(message, lambda _: None).verdict is Verdict.LEAKS


def test_slopes_are_no_gradient(heart):
    heart.write_text(heart.read_text().replace("noise_walk = 0.9\n", ""))
    run = ran(heart, 'local.method="zeroth_order"', "local.lr=0.1", "local.directions=4")
    with pytest.raises(DoesNotFit, match="no gradient"):
        subject(open_run(run.folder))


def test_what_is_left_when_noise_is_subtracted_is_exact_to_the_grid(hospital):
    """The clipped message by two noised ones, beside the trainer's own clipped sum."""
    setup, client = single_step(hospital.audited.built.setup), hospital.audited.client
    wire = Wire(setup, client, hospital.audited.built.start, seed=3)
    batch = hospital.message.batches[0]
    (one,) = wire.clipped([(batch.x, batch.y, None)])
    (other,) = replace(wire, seed=4).clipped([(batch.x, batch.y, None)])
    assert np.abs(one - other).max() < 2.0 ** (4 - min(GRID_BITS, 24)) * np.abs(one).max()


WORDS = """
name = "words"
seed = 1
rounds = 1
[data.text]
path = '{folder}/rows.jsonl'
messages = "messages"
client = "site"
public = true
[model.causal_lm]
base = '{folder}/base'
length = 32
adapter = {{ lora = {{ rank = 48 }} }}
[privacy]
noise_multiplier = 0.1
silos_per_person = 1
[local]
lr = 0.05
clip = 1.0
[strategy.fedavg]
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_adapters_of_a_language_model_give_texts_back_unless_there_is_noise(tmp_path, family):
    """LoRA of a rank above the number of tokens, in round 1, by the model, adapter and exit of a whole run."""
    pytest.importorskip("peft")
    import tiny_lm
    import tiny_tokenizer

    width = {"n_embd": 128} if family == "gpt2" else {"hidden_size": 128}
    tiny_lm.tiny(tiny_tokenizer.write(tmp_path / "base", vocabulary=300), family, vocab_size=300, **width)
    rng, words = stream(0, "words"), ["heart", "blood", "water", "doctor", "film", "question", "rest"]
    rows = [
        {
            "site": f"s{i % 2}",
            "messages": [
                {"role": "user", "content": str(rng.choice(words))},
                {"role": "assistant", "content": str(rng.choice(words))},
            ],
        }
        for i in range(24)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    file = tmp_path / "words.toml"
    file.write_text(WORDS.format(folder=tmp_path))
    message = subject(open_run(ran(file).folder))
    finding = attacks.example("token_span").run(message, lambda _: None)
    figures = {name: figure.value for name, figure in finding.figures.items()}
    assert message.content is Content.TEXT
    assert finding.verdict is Verdict.HOLDS
    assert figures["recall clip"] >= 0.6
    assert figures["precision clip"] >= 0.98
    assert figures["in place clip"] > 0.1  # some texts whole, others not from their beginning on
    assert figures["recall run"] == figures["in place run"] == 0
