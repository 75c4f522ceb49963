"""Held-out figures that leave a silo: bounded, noised, charged before they are drawn, and exactly what was planned."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.experiment import released_metrics as releasing
from sordino.experiment.books import LedgerBooks, NoBooks
from sordino.experiment.config import MetricRelease, parse
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.render import plan_json
from sordino.experiment.run import run
from sordino.federation.mechanisms.laplace import Laplace
from sordino.ledger import Ledger
from sordino.local import evaluate
from sordino.local.losses import IGNORE
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.doors import Door
from sordino.privacy.noise import SeededNoise, SystemNoise
from sordino.privacy.permits import Line, mint_reservation

ASKED = (
    MetricRelease(epsilon=0.5),
    MetricRelease(epsilon=0.5, loss=2.0),
    MetricRelease(noise_multiplier=3.0, loss=2.0),
)
BOTH = "evaluation.release={ epsilon = 0.5, loss = 2.0 }"


def records(count: int, seed: int = 0):
    """Right shares, losses with everything that a broken model gives, and owners of two records each."""
    rng = np.random.default_rng(seed)
    losses = rng.choice([0.0, 0.7, 5.0, 1e100, np.inf, -np.inf, np.nan, -3.0], count)
    return rng.choice([0.0, 0.25, 1.0], count), losses, np.arange(count) // 2


def total(rows, asked, unit=Unit.RECORD):
    """The private sum itself. Only a test may look."""
    return releasing.bounded(rows, unit, asked)._BoundedSum__vector


def farthest(asked, rows_of, *, people: bool) -> tuple[float, float]:
    """How far adding or removing one unit moves the rows' sum at most, in L1 and L2: every unit is tried."""
    right, loss, owners = records(40)
    units = owners if people else np.arange(40)

    def summed(kept):
        return rows_of(right[kept], loss[kept], owners[kept] if people else None, asked).sum(axis=0)

    moves = [summed(units >= 0) - summed(units != unit) for unit in np.unique(units)]
    return max(np.abs(m).sum() for m in moves), max(np.linalg.norm(m) for m in moves)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("people", [False, True])
def test_one_unit_moves_the_sum_by_at_most_the_bound(asked, people):
    """By brute force over every record, or person, with losses that are no numbers; and the bound is reached."""
    found = farthest(asked, releasing.rows_of, people=people)
    assert np.all(np.array(found) <= np.array(releasing.bounds(asked)) + 1e-12)
    if not people:
        assert found == pytest.approx(releasing.bounds(asked))


def unclipped(right, loss, owners, asked):
    """Broken twin: a loss counts as it is."""
    del owners
    return np.stack([right - 0.5, np.nan_to_num(loss, posinf=9.0, neginf=-9.0) / asked.loss - 0.5, right * 0 + 1], 1)


def by_record(right, loss, owners, asked):
    """Broken twin: a person's records count one by one."""
    del owners
    return releasing.rows_of(right, loss, None, asked)


@pytest.mark.parametrize(("twin", "people"), [(unclipped, False), (by_record, True)])
def test_broken_twins_move_it_further(twin, people):
    """Negative control: a loss without a bound, a person who counts twice."""
    found = farthest(ASKED[1], twin, people=people)
    assert found[0] > 1.2 * releasing.bounds(ASKED[1])[0]


def test_the_kernel_holds_even_a_broken_row_to_the_bound():
    """Rows longer than the bound are shortened: what the door's noise is for cannot be exceeded."""
    right, loss, owners = records(40)
    rows = unclipped(right, loss, owners, ASKED[1])
    assert max(np.abs(total(row[None], ASKED[1])).sum() for row in rows) <= 2 + 1e-9
    honest = releasing.rows_of(right, loss, None, ASKED[1])
    np.testing.assert_allclose(total(honest, ASKED[1]), honest.sum(axis=0))


def drawn(asked, rows, times=1500):
    """One silo's releases under different noise. Shape (times, numbers)."""
    mechanism = releasing.mechanism_of(asked, Adjacency.ADD_REMOVE)
    line = Line("silo", Unit.RECORD, events.key(mechanism.event()), times)
    charge = mint_reservation("t", [line], test=True)
    door = Door(mechanism, mechanism.event(), ("silo",), charge, SeededNoise(0))
    return np.stack([door(releasing.bounded(rows, Unit.RECORD, asked)) for _ in range(times)])


def noised(asked, rows) -> bool:
    """Whether every number scatters by the announced standard deviation: 12 % is five standard errors."""
    spread = drawn(asked, rows).std(axis=0) / releasing.noise_std(asked, Adjacency.ADD_REMOVE)
    return bool(np.all(np.abs(spread - 1) < 0.12))


ROWS = np.concatenate([np.tile([[0.5, -0.3, 1.0]], (300, 1)), np.tile([[-0.5, 0.1, 1.0]], (100, 1))])


@pytest.mark.parametrize("asked", ASKED[1:])
def test_every_number_has_the_announced_noise(asked):
    """Accuracy, loss and count alike, Laplace and Gaussian."""
    assert noised(asked, ROWS)


def test_a_count_without_noise_is_found(monkeypatch):
    """Negative control: a mechanism that leaves the last number, the count, as it is."""
    sound = Laplace.draw

    def draw(self, source, permit, scale, size):
        noise = sound(self, source, permit, scale, size)
        noise[-1] = 0.0
        return noise

    monkeypatch.setattr(Laplace, "draw", draw)
    assert not noised(ASKED[1], ROWS)


def test_figures_are_right_within_the_error_that_they_name():
    """Over many draws: centred on the truth, and scattered as each draw says of itself."""
    std = releasing.noise_std(ASKED[1], Adjacency.ADD_REMOVE)
    said = [releasing.Figures("silo", tuple(row), std, 2.0).to_plain() for row in drawn(ASKED[1], ROWS, 800)]
    for name, truth in (("accuracy", 0.75), ("loss", 0.6), ("units", 400)):
        found = np.array([one[name] for one in said])
        error = np.mean([one[f"{name}_error"] for one in said])
        assert abs(found.mean() - truth) < 5 * error / np.sqrt(800)
        assert found.std() / error == pytest.approx(1, abs=0.15)


def test_pooled_figures_are_of_sums():
    """Numbers and variances add up; nothing private is looked at again."""
    parts = tuple(releasing.Figures(name, (10.0, 60.0), 3.0, None) for name in "abcd")
    pooled = releasing.Released(parts).to_plain()
    assert (pooled["accuracy"], pooled["units"], pooled["units_error"]) == (round(0.5 + 10 / 60, 6), 240.0, 6.0)
    assert pooled["visibility"] == "released"
    assert [silo["name"] for silo in pooled["silos"]] == list("abcd")


@pytest.fixture
def planned(heart, unwatched):
    """The hospitals' plan and data, with figures to be released."""
    del unwatched

    def plan(*overrides: str):
        experiment = parse(heart.read_text(encoding="utf-8"), (BOTH, "rounds=1", *overrides))
        population = load(experiment)
        return make_plan(experiment, population), population

    return plan


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_plan_pays_for_them(planned, relation):
    """One event more in every account, within its epsilon; alone it costs what was asked for under either relation."""
    plan, _ = planned(f"privacy.adjacency={relation}")
    for account in plan.accounts:
        price = best_epsilon(account.events, 1e-5, adjacency=plan.adjacency).epsilon
        assert account.releases == 2
        assert 1.97 < account.epsilon == price <= 2.0
    ((event, _),) = releasing.charged(plan.experiment, plan.adjacency)
    assert best_epsilon([(event, 1)], 1e-9, adjacency=plan.adjacency).epsilon == pytest.approx(0.5, rel=1e-3)
    held_out = plan_json(plan)["metric_release"]["held_out_epsilon"]
    assert held_out is None if relation == "replace_one" else held_out == pytest.approx(0.5, rel=1e-3)


def test_they_are_charged_before_they_are_drawn_and_claimed_as_planned(planned, tmp_path, monkeypatch):
    """Reserve as `metric`, draw once per silo, commit; the claims hold exactly the plan's events."""
    plan, population = planned()
    seen = []
    for owner, name in ((LedgerBooks, "reserve"), (Laplace, "draw"), (LedgerBooks, "commit")):
        sound = getattr(owner, name)

        def spied(self, *args, sound=sound, name=name, **keys):
            seen.append(keys.get("purpose", name))
            return sound(self, *args, **keys)

        monkeypatch.setattr(owner, name, spied)
    result = run(plan, population, "", tmp_path)

    assert seen == ["reserve", "commit", "metric", *["draw"] * 4, "commit"]
    charges = {account.name: sorted(account.charges) for account in plan.accounts}
    assert {claim.account: sorted(claim.events) for claim in result.claims} == charges
    assert result.summary["epsilon"] == plan.epsilon
    assert all(claim.complete for claim in result.claims)
    figures = result.summary["released_metrics"]
    assert figures["visibility"] == "released"
    assert [silo["name"] for silo in figures["silos"]] == list(population.names)
    with Ledger(result.folder / "ledger.db", read_only=True) as ledger:
        assert [c.purpose for c in ledger.charges(plan.run)] == ["train", "metric"]


def test_what_was_not_planned_is_not_drawn(planned, tmp_path, monkeypatch):
    """Broken twin: a plan that forgets the release. The ledger refuses, and no figure is seen."""
    with monkeypatch.context() as broken:
        broken.setattr(releasing, "charged", lambda *_: ())
        plan, population = planned()
    monkeypatch.setattr(Laplace, "draw", lambda *_: pytest.fail("drew"))
    with pytest.raises(BudgetRefused):
        run(plan, population, "", tmp_path)


def test_no_charge_no_figures(planned):
    """Without a reservation the release does not run."""
    plan, population = planned()
    from sordino.experiment.build import build

    built = build(plan, population, probe=False)
    with pytest.raises(PrivacyError, match="no reservation"):
        releasing.release(built.setup, NoBooks(), "run", built.start)


def test_a_crash_loses_them_or_keeps_the_same_bytes(planned, tmp_path, monkeypatch):
    """Before the commit: paid for and never drawn again. After it: the same figures, and no second draw."""
    plan, population = planned()
    with monkeypatch.context() as dying:
        sound = LedgerBooks.commit

        def commit(self, reservation, artefact):
            if reservation.txid.endswith("metrics"):
                raise KeyboardInterrupt
            sound(self, reservation, artefact)

        dying.setattr(LedgerBooks, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            run(plan, population, "", tmp_path / "before")
    lost = run(plan, population, "", tmp_path / "before")
    assert lost.summary["released_metrics"] is None
    assert (lost.summary["rounds_lost"], lost.summary["epsilon"]) == (0, plan.epsilon)

    with monkeypatch.context() as dying:
        kept = []
        dying.setattr(RunFolder, "finish", lambda _, summary: kept.append(summary["released_metrics"]) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(plan, population, "", tmp_path / "after")
    monkeypatch.setattr(Laplace, "draw", lambda *_: pytest.fail("drew"))
    assert run(plan, population, "", tmp_path / "after").summary["released_metrics"] == kept[0]


def test_a_silo_that_holds_out_nobody_releases_noise_all_the_same(planned):
    """Whether anybody is there must not show: a charge, and a vector around zero."""
    plan, population = planned()
    test = population.test
    rest = replace(test, names=test.names[1:], rows=test.rows[1:])
    setup = SimpleNamespace(population=replace(population, test=rest), unit=Unit.RECORD, experiment=plan.experiment)
    empty = releasing._held_out(setup, 0, plan.experiment.evaluation.release)
    np.testing.assert_array_equal(empty._BoundedSum__vector, np.zeros(3))
    assert empty.l1 == 2.0


def test_persons_are_the_unit_where_they_are_protected(table):
    """A hospital's count is that of its held-out persons, not of their records; no promise rests on who that is."""
    text = table.read_text(encoding="utf-8")
    experiment = parse(text, ("privacy.unit=user", "evaluation={ test_fraction = 0.5, release = { epsilon = 0.5 } }"))
    population = load(experiment)
    module = torch.nn.Linear(2, 1)
    setup = SimpleNamespace(population=population, unit=Unit.USER, experiment=experiment, module=module)
    for client in range(len(population)):
        counted = releasing._held_out(setup, client, experiment.evaluation.release)._BoundedSum__vector[-1]
        silo = population.test.silo(client)
        assert counted == len(np.unique(silo.user)) < len(silo)
    assert releasing.held_out(SimpleNamespace(adjacency=Adjacency.ADD_REMOVE, experiment=experiment)) is None


CLIENTS = (
    "privacy={ unit = 'client', noise_at = 'coordinator', epsilon = 8.0 }",
    "partition={ iid = { clients = 20 } }",
    "stages=[{ clip = { norm = 0.1 } }]",
    "local={ lr = 1.0 }",
)


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        (CLIENTS, ConfigError),
        (("evaluation.data={ heart = {} }",), ConfigError),
        (("privacy={ non_private = true }", "local={ lr = 1.0 }"), ConfigError),
        (("evaluation.release={ epsilon = 2.0 }",), BudgetRefused),
        (("silos={ hungary = { epsilon = 0.4 } }",), BudgetRefused),
        (("evaluation.release={ epsilon = 0.5, noise_multiplier = 3.0 }",), ConfigError),
        (("evaluation.release={ loss = 2.0 }",), ConfigError),
        (("evaluation.release={ epsilon = 0.5, loss = 0.0 }",), ConfigError),
    ],
)
def test_what_cannot_be_released_is_refused(planned, overrides, error):
    """In one line, before anything runs."""
    with pytest.raises(error, match=r"evaluation\.release"):
        planned(*overrides)


@pytest.mark.parametrize(("outputs", "positions"), [(1, None), (5, None), (5, 7)])
def test_every_record_is_judged_by_itself(outputs, positions):
    """As accuracy and loss of all together; to the bit the same whoever else is there, beyond one pass."""
    rng = np.random.default_rng(0)
    shape = (130, 4) if positions is None else (130, positions, 4)
    model = torch.nn.Linear(4, outputs)
    x = rng.normal(size=shape).astype(np.float32)
    y = rng.integers(max(2, outputs), size=shape[:-1])
    if positions is not None:
        y[:, -2:] = IGNORE
    right, loss = evaluate.each(model, x, y)
    scores = evaluate.scores(model, x)

    assert right.mean() == pytest.approx(evaluate.accuracy(scores, y))
    assert loss.mean() == pytest.approx(evaluate.loss(scores, y), rel=1e-5)
    np.testing.assert_array_equal(evaluate.each(model, x[:70], y[:70]), (right[:70], loss[:70]))
    assert [len(part) for part in evaluate.each(model, x[:0], y[:0])] == [0, 0]


class Foretelling(torch.nn.Module):
    """Logits of the next token at every position, as language models give them, in passes of a few texts."""

    padding, numbers_per_token = 0, 2**20

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 11)

    def forward(self, x):
        return self.table(x)


def test_texts_are_judged_text_by_text():
    """Weighted by their tokens that is what all tokens together give; a text without any is wrong, at no loss."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, 11, size=(150, 9))
    y = rng.integers(0, 11, size=(150, 9))
    for row, length in enumerate(rng.integers(1, 9, size=150)):
        x[row, length:], y[row, length:] = 0, IGNORE
    y[3] = IGNORE
    model = Foretelling()
    right, loss = evaluate.each(model, x, y)
    counted = (y != IGNORE).sum(axis=1)
    assert (float(loss @ counted / counted.sum()), float(right @ counted / counted.sum())) == pytest.approx(
        evaluate.continued(model, x, y), rel=1e-5
    )
    assert (right[3], loss[3]) == (0, 0)


def test_seeded_noise_stays_out_of_real_accounts():
    """As at every other door."""
    mechanism = releasing.mechanism_of(ASKED[0], Adjacency.ADD_REMOVE)
    key = events.key(mechanism.event())
    rows = releasing.bounded(np.zeros((3, 2)), Unit.RECORD, ASKED[0])
    for source, works in ((SeededNoise(0), False), (SystemNoise(), True)):
        charge = mint_reservation("t", [Line("silo", Unit.RECORD, key, 1)], test=False)
        door = Door(mechanism, mechanism.event(), ("silo",), charge, source)
        if works:
            assert door(rows).shape == (2,)
        else:
            with pytest.raises(PrivacyError, match="seeded"):
                door(rows)
