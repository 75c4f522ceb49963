"""Answers lie within the error that stands beside them, as often as it says: on 920 patients of four hospitals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from patients import DECLARED, FILE, PAINS, SEXES, account, books, session
from scipy.stats import binom

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.privacy.permits import Line
from sordino.query import Offer, Question, Source, Statistic, noise, prices, rows
from sordino.query.measures import Cells

FALSE_ALARM = 1e-7
DRAWS = 60
ASKED = (
    Statistic("count"),
    Statistic("sum", "oldpeak"),
    Statistic("avg", "age"),
    Statistic("histogram", "chol", bins=6),
)


def truth(frame, item):
    """A statistic of some rows by pandas; clamped as declared."""
    if item.kind == "count":
        return [len(frame)]
    low, high = DECLARED.ranges[item.column]
    values = frame[item.column].clip(low, high).dropna()
    if item.kind == "histogram":
        return np.histogram(values, bins=np.linspace(low, high, item.bins + 1))[0].tolist()
    return [values.sum() if item.kind == "sum" else values.mean()]


@pytest.fixture(scope="module")
def groups():
    """The rows of every pair of declared keys; some pairs have none."""
    import pandas as pd

    frame = pd.read_csv(FILE)
    return {(sex, cp): frame[(frame.sex == sex) & (frame.cp == cp)] for sex in SEXES for cp in PAINS}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Figures of the same question, drawn anew many times under either law of noise."""
    folder = tmp_path_factory.mktemp("drawn")
    asking = {
        "epsilon": session(folder, account("pure", epsilon=1e4), table=Source(DECLARED, FILE)),
        "rho": session(folder, account("zcdp", "zcdp", epsilon=1e4), table=Source(DECLARED, FILE)),
    }
    return {
        name: [one.ask(*ASKED, by=("sex", "cp"), again=again, **{name: 2.0}) for again in range(DRAWS)]
        for name, one in asking.items()
    }


@pytest.mark.parametrize("law", ["epsilon", "rho"])
@pytest.mark.parametrize("item", ASKED, ids=lambda item: item.kind)
def test_intervals_hold_the_exact_value_as_often_as_they_say(law, item, drawn, groups):
    """
    In at least 95 % of draws, tested binomially. With the error written a third as large, they would not: a test that
    cannot fail would be found out.
    """
    hits, narrow, trials = 0, 0, 0
    for answer in drawn[law]:
        mine = [figure for figure in answer.figures if figure.name == item.title]
        exact = [(key, value) for key in groups for value in truth(groups[key], item)]
        assert [figure.group for figure in mine] == [key for key, _ in exact]
        for figure, (_, value) in zip(mine, exact, strict=True):
            if np.isnan(value):
                continue
            trials += 1
            hits += figure.low - 1e-9 <= value <= figure.high + 1e-9
            narrow += abs(figure.value - value) <= (figure.high - figure.low) / 6

    least = binom.ppf(FALSE_ALARM, trials, noise.CONFIDENCE)
    assert hits >= least
    assert narrow < least


@pytest.mark.parametrize("law", ["epsilon", "rho"])
def test_intervals_are_no_wider_than_they_need_to_be(law, drawn, groups):
    """
    Sums are on a fine grid, so their intervals are exact: not more than 95 % of draws either.
    """
    sums = [
        (figure, groups[figure.group]) for answer in drawn[law] for figure in answer.figures if "SUM" in figure.name
    ]
    hits = sum(figure.low <= truth(frame, ASKED[1])[0] <= figure.high for figure, frame in sums)

    assert hits <= binom.ppf(1 - FALSE_ALARM, len(sums), noise.CONFIDENCE + 1e-3)


@pytest.mark.parametrize("law", ["epsilon", "rho"])
def test_the_standard_error_is_that_of_the_noise(law, drawn, groups):
    for item in ASKED[:2]:
        pairs = [(f, groups[f.group]) for answer in drawn[law] for f in answer.figures if f.name == item.title]
        errors = np.array([(f.value - truth(frame, item)[0]) / f.standard_error for f, frame in pairs])

        assert len(errors) == DRAWS * 12
        assert np.mean(errors**2) == pytest.approx(1, abs=0.6)  # seven deviations of a Laplace sample's second moment
        assert abs(np.mean(errors)) < 6 / np.sqrt(len(errors))


def test_every_declared_group_gets_an_answer_also_without_rows(drawn, groups):
    """
    Nobody in the table is of sex Other: whether anybody is may not show.
    """
    empty = [figure for figure in drawn["epsilon"][0].figures if figure.group[0] == "Other"]

    assert {figure.group for figure in empty} == {("Other", cp) for cp in PAINS}
    assert not any(len(groups[key]) for key in groups if key[0] == "Other")
    assert any(f.value != 0 for answer in drawn["epsilon"] for f in answer.figures if f.group[0] == "Other")


@pytest.mark.parametrize("law", ["epsilon", "rho"])
def test_a_quantiles_rank_is_as_near_as_it_says(law, tmp_path, groups):
    one = session(tmp_path, account("a", "pure" if law == "epsilon" else "zcdp", epsilon=1e4))
    private = rows.load(one._source, Unit.RECORD)
    points = np.array(DECLARED.points("age"))
    hits, trials = 0, 0
    for level in (0.5, 0.9):
        for again in range(15):
            answer = one.quantile("age", level, by=["sex"], again=again, **{law: 0.5})
            for cell, figure in enumerate(answer.figures):
                values = private.numbers["age"][private.places["sex"] == cell]
                off = [abs((values < p).sum() - level * (len(values) - (values == p).sum())) for p in points]
                chosen = int(np.argmin(np.abs(points - figure.value * 1e5)))
                assert figure.value == DECLARED.numbers("age").value(points[chosen])
                hits += off[chosen] <= min(off) + figure.rank_error
                trials += 1

    assert hits >= binom.ppf(FALSE_ALARM, trials, noise.CONFIDENCE)
    median = one.quantile("age", **{law: 50.0}).value
    assert median == pytest.approx(float(np.median(private.numbers["age"])) / 1e5, abs=1)


@pytest.mark.parametrize("offer", [Offer(epsilon=0.3), Offer(rho=0.01)], ids=["laplace", "gaussian"])
def test_no_less_noise_is_drawn_than_is_charged(offer):
    """
    OpenDP itself prices the noise at the charge, to the last bits: not above it, and not a millionth below.
    """
    tariff = prices.tariff(offer, 1, {"a": (account("a", "zcdp"), 10**12)}, account().adjacency)
    dp = noise.opendp()
    space = dp.vector_domain(dp.atom_domain(T=dp.i64))

    def make(scale):
        if tariff.law == "laplace":
            return dp.m.make_laplace(space, dp.l1_distance(T=dp.i64), scale=scale)
        return dp.m.make_gaussian(space, dp.l2_distance(T=dp.i64), scale=scale)

    scale = float(7 / tariff.amount if tariff.law == "laplace" else 7 / np.sqrt(2 * tariff.amount))
    fitted, _ = noise._fitted(make, scale, 7, tariff.amount)

    assert tariff.amount * (1 - 1e-6) < fitted.map(7) <= tariff.amount
    with pytest.raises(PrivacyError, match="more than is charged"):
        noise._fitted(make, scale / 2, 7, tariff.amount)


def test_one_permit_one_draw(tmp_path):
    """
    No permit, no noise; and a permit serves once.
    """
    tariff = prices.tariff(Offer(epsilon=0.5), 1, {"north": (account(), 10**12)}, account().adjacency)
    with books(tmp_path) as ledger:
        ledger.open_run("r")
        reservation = ledger.reserve("t", "r", None, "query", [Line("north", Unit.RECORD, tariff.key, 1)])
        permit = reservation.take(["north"], tariff.key)
        noise.noised(permit, np.zeros(1, np.int64), 1, tariff)
        with pytest.raises(PrivacyError, match="already drawn"):
            noise.noised(permit, np.zeros(1, np.int64), 1, tariff)
    for fake in (None, dataclasses.make_dataclass("Permit", ["use"])(lambda: None)):
        with pytest.raises(PrivacyError, match="only under a permit"):
            noise.chosen(fake, [np.zeros(1, np.int64)], (0, 1), 0.5, 1, tariff)


def test_groups_are_those_of_pandas(groups):
    """
    Without noise, every cell has exactly its rows.
    """
    private = rows.load(Source(DECLARED, FILE), Unit.RECORD)
    question = Question(ASKED, ("sex", "cp"))
    cells = Cells(question.by).of(private, np.ones(private.size, bool), DECLARED)
    for item in (ASKED[0], ASKED[3]):
        (measure,) = item.measures(DECLARED)
        exact = measure.exact(private, cells, 12, DECLARED)
        assert exact.tolist() == [value for key in groups for value in truth(groups[key], item)]
