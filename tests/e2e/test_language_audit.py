"""A finished run's language model is trained again with planted sequences: what is attacked is what ran."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from whole_runs import planned, ran

import tiny_lm
import tiny_tokenizer
from sordino.audit.attacks import attacks
from sordino.audit.findings import Verdict
from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.language import Sequences
from sordino.core.types import Unit
from sordino.data import characters
from sordino.data.examples import IGNORE
from sordino.experiment import config
from sordino.experiment.audits import language
from sordino.experiment.audits._audited import Audited
from sordino.experiment.audits._sequences import Windowed, form_of
from sordino.experiment.audits.opening import open_run
from sordino.experiment.build import build
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import make_plan
from sordino.experiment.population import Population, load
from sordino.experiment.settings.record_at_silo import steps_of
from sordino.local.models import InputSpec, models
from sordino.privacy.noise import SeededNoise

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

EXPERIMENT = """
name = "words"
seed = 1
rounds = 2
[data.text]
path = '{data}'
{columns}
client = "site"
user = "person"
public = true
[model.{model}]
base = '{base}'
length = 32
adapter = {{ lora = {{ rank = 2 }} }}
[privacy]
{privacy}
[local]
lr = 0.05
{clip}
[strategy.fedavg]
"""
TASKS = {
    "causal_lm": ("llama", 'text = "text"'),
    "text_classifier": ("bert", 'text = "text"\nlabel = "mood"\nclasses = ["bad", "good"]'),
}
PRIVATE = "noise_multiplier = 1.0\nsilos_per_person = 1"
QUIET = lambda _: None  # noqa: E731 - a progress that says nothing


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Runs a tiny experiment, once per setting, and opens it for an audit."""
    place = tmp_path_factory.mktemp("language")
    rows = place / "rows.jsonl"
    lines = [
        {"text": f"{'fine' if i % 2 else 'dull'} film {i % 7}", "mood": "good" if i % 2 else "bad", "site": f"s{i % 2}"}
        | {"person": f"s{i % 2}-p{i // 4}"}
        for i in range(80)
    ]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = {}

    def open_(task: str = "causal_lm", privacy: str = PRIVATE):
        if (task, privacy) not in done:
            family, columns = TASKS[task]
            base = place / family
            if not base.exists():
                tiny_lm.tiny(tiny_tokenizer.write(base, vocabulary=300), family, vocab_size=300)
            file = place / f"{task}-{len(done)}.toml"
            clip = "epochs = 1" if "non_private" in privacy else "clip = 1.0"
            file.write_text(
                EXPERIMENT.format(data=rows, columns=columns, model=task, base=base, privacy=privacy, clip=clip)
            )
            done[task, privacy] = open_run(ran(file, runs=place / f"runs-{len(done)}").folder, seed=3)
        return done[task, privacy]

    return open_


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def held_by(monkeypatch, subject, *arguments, **terms) -> Population:
    """The population that a training would run on."""
    seen = []
    monkeypatch.setattr(language, "retrained", lambda audited, population, seed: seen.append(population))
    subject.train(*arguments, **terms)
    return seen[0]


@pytest.mark.parametrize("task", list(TASKS))
def test_what_is_trained_again_is_what_ran(opened, task):
    """
    Without privacy nothing is drawn, so the same rounds on the same records end at the run's own model, to the bit.
    """
    audited = opened(task, "non_private = true")

    again = language.retrained(audited, audited.population, audited.plan.experiment.seed)

    assert np.array_equal(again, audited.model)
    assert not np.array_equal(again, audited.built.start)


def test_every_training_has_noise_of_its_own_and_charges_nobody(opened):
    """
    The same seed is the same training, another is not; the run's ledger keeps every byte.
    """
    audited = opened()
    subject, ledger = language.subject(audited), sha256(audited.folder.ledger)
    nobody = Sequences.of([])

    one, same, other = subject.train(nobody, 1), subject.train(nobody, 1), subject.train(nobody, 2)

    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert sha256(audited.folder.ledger) == ledger


@pytest.mark.parametrize("task", list(TASKS))
def test_records_and_sequences_are_the_same_thing(opened, task):
    """
    Own records survive the way to sequences and back, and their likelihoods are the training's own losses.
    """
    from sordino.local.losses import cross_entropy

    audited = opened(task)
    subject, silo = language.subject(audited), audited.population.train.silo(audited.client)
    own = subject.own()

    x, y = subject.form.records(own)
    said = subject.log_likelihoods(audited.model, own)

    assert np.array_equal(x, silo.x)
    assert np.array_equal(y, silo.y)
    setup = audited.built.setup
    setup.layout.restore(setup.module, audited.model)
    with torch.no_grad():
        loss = cross_entropy(setup.module(torch.from_numpy(silo.x)), torch.from_numpy(silo.y)).numpy()
    assert np.allclose(-np.nanmean(said, axis=1), loss, atol=1e-5)
    if task == "causal_lm":
        after = subject.next_token(audited.model, own.tokens[:1, :4])
        assert after[0, own.tokens[0, 4]] == pytest.approx(said[0, 3], abs=1e-5)
        assert np.array_equal(subject.log_likelihoods(audited.model, own, since=3), said[:, 2:], equal_nan=True)


def test_planted_sequences_join_the_silo_and_move_no_public_number(opened, monkeypatch):
    """
    As persons of their own, behind the silo's records; divisors and counts stay those of the run.
    """
    audited = opened(privacy=PRIVATE + '\nunit = "user"')
    subject, silo = language.subject(audited), audited.client
    texts = subject.encode(["fine film 1", "dull film 2", "dull film 2"])

    held = held_by(monkeypatch, subject, texts, 1)

    before, after = audited.population.train.silo(silo), held.train.silo(silo)
    assert len(after) == len(before) + 3
    assert np.array_equal(after.x[:-3], before.x)
    strangers = set(after.user[-3:].tolist())
    assert len(strangers) == 3
    assert not strangers & set(audited.population.train.examples.user.tolist())
    assert np.array_equal(subject.form.sequences(after.x, after.y).tokens[-1, :5], texts.tokens[2, :5])
    again = replace(audited.built.setup, population=held)
    assert steps_of(again, silo) == steps_of(audited.built.setup, silo)
    assert audited.promise.unit is Unit.USER


def test_sequences_may_be_left_out(opened, monkeypatch):
    """
    Only the silo's own, and only those.
    """
    audited = opened()
    subject = language.subject(audited)
    keep = np.arange(len(subject.own())) % 3 > 0

    held = held_by(monkeypatch, subject, Sequences.of([]), 1, keep=keep)

    assert np.array_equal(held.train.silo(audited.client).x, audited.population.train.silo(audited.client).x[keep])
    assert np.array_equal(held.train.silo(1 - audited.client).x, audited.population.train.silo(1 - audited.client).x)


def test_new_tokens_are_new(opened):
    """
    No record of any silo holds one, and neither does the filling.
    """
    subject = language.subject(opened())
    inside = opened().population.train.examples

    assert not np.isin(subject.unused(), inside.x).any()
    assert not np.isin(subject.unused(), inside.y).any()
    assert not np.isin(subject.used(), subject.unused()).any()
    assert np.isin(inside.y[inside.y != IGNORE], subject.used()).all() or inside.padding in inside.y
    assert inside.padding not in {*subject.unused(), *subject.used()}


def test_every_attack_on_a_continuing_model_runs(opened):
    """
    On a private run of two rounds nothing speaks against the promise.
    """
    subject = language.subject(opened())
    few = {
        "exposure": {"copies": [1, 8], "secrets": 2, "digits": 2},
        "extraction": {"copies": [8], "secrets": 2, "digits": 2},
        "sequence_membership": {},
        "new_token_canaries": {"canaries": 60},
    }
    for name, options in few.items():
        found = attacks.build(name, options).run(subject, QUIET)
        assert found.verdict is not Verdict.REFUTED, found
        assert found.promise == opened().promise


def test_attacks_on_a_classifier_run_or_do_not_fit(opened):
    """
    Membership and canaries by the label; nothing goes on from a prefix.
    """
    subject = language.subject(opened("text_classifier"))
    assert attacks.build("sequence_membership", {}).run(subject, QUIET).figures
    assert attacks.build("new_token_canaries", {"canaries": 60}).run(subject, QUIET).figures
    for name in ("exposure", "extraction"):
        with pytest.raises(DoesNotFit):
            attacks.example(name).run(subject, QUIET)


LETTERS = """
name = "letters"
seed = 1
rounds = 1
[data.leaf]
path = '{data}'
kind = "characters"
[model.char_lstm]
embedding = 8
hidden = 24
layers = 1
[privacy]
noise_multiplier = 60.0
[local]
lr = 8.0
clip = 1.0
steps = 60
[strategy.fedavg]
"""


@pytest.fixture
def letters(tmp_path):
    """A small network over characters, all of it trained, as an audit opens it."""
    text = "to be or not to be that is the question whether it is nobler in the mind to suffer the slings "
    x, y = characters.windows(text, length=8, stride=2)
    said = ["".join(characters.ALPHABET[token] for token in row) for row in x]
    follows = [characters.ALPHABET[token] for token in y]
    user = {"x": said, "y": follows}
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"users": ["a", "b"], "num_samples": [len(y)] * 2, "user_data": {"a": user, "b": user}}))
    experiment = config.parse(LETTERS.format(data=file))
    population = load(experiment)
    plan = make_plan(experiment, population, check_learning=False)
    built = build(plan, population, probe=False)
    promise = Promise.declared(plan.accounts[0].events, plan.delta, adjacency=plan.adjacency, by="the plan")
    return Audited(RunFolder(tmp_path), plan, population, built, promise, built.start, client=0, seed=3)


def test_a_planted_leak_in_the_run_is_found(letters, monkeypatch):
    """
    Positive control through the run's own code: what is charged for is never drawn. The same plan with its noise holds.
    """
    subject = language.subject(letters)
    attack = attacks.build("new_token_canaries", {"canaries": 100, "length": 6})

    assert attack.run(subject, QUIET).verdict is Verdict.HOLDS
    monkeypatch.setattr(SeededNoise, "normal", lambda self, permit, std, size: np.zeros(size))
    found = attack.run(subject, QUIET)

    assert found.verdict is Verdict.REFUTED, found


def test_copies_of_windows_are_several_records(letters):
    """
    A text of windows is as many records as characters are foretold, and the promise is printed for so many.
    """
    subject = language.subject(letters)
    options = {"copies": [2], "secrets": 2, "digits": 2, "template": "pin {name} {secret}"}

    found = attacks.build("exposure", options).run(subject, QUIET)

    records = len("pin baba 12") - 1
    assert f"ε is 2 copies {2 * records * letters.promise.epsilon:.3g}" in found.says


def test_texts_that_fill_the_model_are_refused(opened):
    """
    A secret that was cut off would be nobody's secret.
    """
    with pytest.raises(DoesNotFit):
        language.subject(opened()).encode(["a very long text " * 20])


def test_a_table_has_no_sequences(heart):
    """
    Said in a sentence.
    """
    _, population = planned(heart)
    with pytest.raises(DoesNotFit, match=r"\.$"):
        form_of(population.spec)


class TestWindows:
    """A network that reads windows of characters: one record per character to foretell."""

    spec = InputSpec((6,), classes=80, vocabulary=80)
    form = Windowed(spec)
    module = models.build("char_lstm", {"embedding": 3, "hidden": 5, "layers": 1}).build(spec, seed=1)

    def test_a_text_is_as_many_records(self):
        """
        The first character is foretold by nothing; windows are filled up on the left.
        """
        x, y = self.form.records(self.form.encoded(["to be"]))
        assert len(y) == 4 == self.form.records_of(self.form.encoded(["to be", "I"]))
        assert x[0].tolist() == [0, 0, 0, 0, 0, *characters.tokens("t")]
        assert x[3].tolist() == [0, 0, *characters.tokens("to b")]
        assert y.tolist() == characters.tokens("o be").tolist()

    def test_likelihoods_are_the_networks(self):
        """
        One window at a time, as by hand.
        """
        texts = self.form.encoded(["to be, or", "to be 12"])
        said = self.form.log_likelihoods(self.module, texts, 1)
        x, y = self.form.records(texts)
        with torch.no_grad():
            by_hand = self.module(torch.from_numpy(x)).log_softmax(-1)[torch.arange(len(y)), torch.from_numpy(y)]
        assert np.allclose(said[~np.isnan(said)], by_hand.numpy(), atol=1e-6)
        after = self.form.next_token(self.module, texts.tokens[:, :4])
        assert np.allclose(after[[0, 1], texts.tokens[:, 4]], said[:, 3])

    def test_records_are_sequences_of_one_window(self):
        """
        And back.
        """
        x, y = self.form.records(self.form.encoded(["to be, or not"]))
        again = self.form.records(self.form.sequences(x, y))
        assert np.array_equal(again[0], x)
        assert np.array_equal(again[1], y)

    def test_strange_characters_do_not_fit(self):
        """
        The alphabet is the model's.
        """
        with pytest.raises(DoesNotFit):
            self.form.encoded(["café"])
