"""The schedule of asynchronous rounds: public, capped, and no buffer holds two updates of one client."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency
from sordino.federation.sampling import _arrivals
from sordino.federation.sampling._arrivals import Arrivals
from sordino.federation.sampling.buffered import Buffered
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.gaussian import epsilon_of

LAWS = ("constant", "exponential", "half_normal")


def problems(flushes, arrivals: Arrivals, population: int) -> list[str]:
    """What a schedule must never do, written anew."""
    found = []
    for number, flush in enumerate(flushes):
        clients = flush.clients.tolist()
        if len(set(clients)) < len(clients):
            found.append("two updates of one client in a buffer")
        if len(clients) != arrivals.buffer or not all(0 <= client < population for client in clients):
            found.append("not a buffer of clients")
        if (flush.versions > number).any() or (flush.versions < 0).any():
            found.append("a model from the future")
    counts = np.bincount(np.concatenate([flush.clients for flush in flushes]), minlength=population)
    if counts.max() > arrivals.participations:
        found.append("more often than the cap")
    times = [flush.time for flush in flushes]
    return found if times == sorted(times) else [*found, "time runs backwards"]


@given(
    population=st.integers(1, 30),
    buffer=st.integers(1, 30),
    concurrency=st.integers(1, 40),
    cap=st.integers(1, 6),
    law=st.sampled_from(LAWS),
    spread=st.sampled_from([0.0, 1.5]),
    seed=st.integers(0, 99),
)
def test_no_schedule_breaks_its_rules(population, buffer, concurrency, cap, law, spread, seed):
    """Whatever the federation: one update per client and buffer, the cap, and models that exist already."""
    arrivals = Arrivals(buffer, concurrency, cap, law, spread, seed)
    flushes = arrivals.flushes(population, 40)

    if buffer > population:
        assert flushes == ()
    elif flushes:
        assert problems(flushes, arrivals, population) == []


def test_a_schedule_that_asks_clients_again_too_early_is_found(monkeypatch):
    """Negative control: clients that are asked again before the flush come twice into a buffer, and over the cap."""
    monkeypatch.setattr(_arrivals, "_asked", lambda idle: idle[0][2])
    arrivals = Arrivals(3, 4, 2, "exponential", 0.0, 1)

    found = problems([flush for flush, _ in zip(arrivals.play(5), range(20), strict=False)], arrivals, 5)

    assert "two updates of one client in a buffer" in found
    assert "more often than the cap" in found


def test_constant_durations_by_hand():
    """
    Two of four clients at work, buffers of two. A third starts when the first arrives, from the model before the
    flush; the fourth after it: so every later buffer holds one update of age 1 and one of age 0.
    """
    flushes = Arrivals(2, 2, 9, "constant", 0.0, 0).flushes(4, 5)

    ages = [(number - flush.versions).tolist() for number, flush in enumerate(flushes)]
    assert ages == [[0, 0], [1, 0], [1, 0], [1, 0], [1, 0]]
    assert [flush.time for flush in flushes] == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("law", LAWS)
def test_durations_have_mean_one(law):
    """One client at work: the time of the n-th arrival is a sum of n durations, within 5 standard errors."""
    flushes = Arrivals(1, 1, 10**6, law, 0.0, 3).flushes(2, 4000)

    assert flushes[-1].time / 4000 == pytest.approx(1.0, abs=5 / 4000**0.5)


def test_those_who_took_part_least_are_asked_first():
    """Of 50 clients in 100 buffers of 5, all come 9 to 11 times: a cap close to the mean is enough."""
    counts = Buffered(size=5, per_client=11, concurrency=10).participations(50, 100)

    assert counts.min() >= 9


def test_a_longer_run_starts_like_a_shorter_one():
    """A round's buffer does not depend on how many rounds follow."""
    sampler = Buffered(size=4, per_client=50, concurrency=9)
    short, long = sampler.flushes(20, 7), sampler.flushes(20, 33)

    for one, other in zip(short, long, strict=False):
        assert (one.clients == other.clients).all()
        assert (one.versions == other.versions).all()


def test_everybody_at_the_cap_ends_the_schedule():
    """Twenty clients, once each, fill four buffers of five and no fifth: refused before anything runs."""
    sampler = Buffered(size=5, per_client=1, concurrency=10)

    assert sampler.participations(20, 4).tolist() == [1] * 20
    with pytest.raises(ConfigError, match="fill 4 buffers"):
        sampler.participations(20, 5)


def test_a_schedule_over_the_cap_is_no_plan(monkeypatch):
    """Broken twin: a schedule that forgets the cap is refused where participations are counted."""
    sound = Arrivals.flushes
    monkeypatch.setattr(Arrivals, "flushes", lambda self, n, k: sound(replace(self, participations=10**6), n, k))

    with pytest.raises(PrivacyError, match="exceeded"):
        Buffered(size=5, per_client=2, concurrency=5).participations(10, 40)


@pytest.mark.parametrize("key", ["exponent", "spread"])
@pytest.mark.parametrize("value", [-0.1, 10.1, float("nan"), float("inf")])
def test_terms_without_sense_are_refused(key, value):
    """At most 10: weights stay above zero, and paces finite."""
    with pytest.raises(ConfigError, match="must lie in"):
        Buffered(size=1, per_client=1, concurrency=1, **{key: value})
    assert Buffered(size=1, per_client=1, concurrency=1, exponent=10.0).discount(10**6) > 0


def test_the_price_is_that_of_unsampled_gaussians():
    """k releases of multiplier z are √k/z-GDP: no amplification by arrival, whatever the population."""
    sampler = Buffered(size=10, per_client=7, concurrency=30)
    event = sampler.event(events.gaussian(3.0), 10_000)

    price = best_epsilon([(event, 7)], 1e-6, adjacency=Adjacency.ZERO_OUT)

    assert price.epsilon == pytest.approx(epsilon_of(7**0.5 / 3.0, 1e-6), rel=1e-12)


def test_models_are_kept_as_long_as_somebody_works_on_them():
    """After each round: exactly the models that a later round's update starts from."""
    sampler, rounds = Buffered(size=2, per_client=99, concurrency=8, spread=1.0), 30
    versions = [set(flush.versions.tolist()) for flush in sampler.flushes(12, rounds)]

    for t in range(rounds):
        later = set().union(*versions[t + 1 :])
        assert sampler.needed(12, t, rounds) == {version for version in later if version <= t}
    assert any(len(sampler.needed(12, t, rounds)) > 1 for t in range(rounds))


def test_known_paces_decide_who_comes_how_often():
    """Who takes four times as long comes a quarter as often; one pace for each client, or none."""
    sampler = Buffered(size=2, per_client=200, concurrency=4, durations="constant", paces=(1.0, 1.0, 4.0, 1.0))
    counts = sampler.participations(4, 100)

    assert 3 <= counts[[0, 1, 3]].min() / counts[2] <= 5
    with pytest.raises(ConfigError, match="one for each of the 5 clients"):
        sampler.flushes(5, 3)
    with pytest.raises(ConfigError, match="paces=0"):
        replace(sampler, paces=(1.0, 0.0))


@functools.cache
def fewest(left: tuple[int, ...], size: int) -> int:
    """How many buffers are filled where whoever comes is the worst there could be, by trying everybody."""
    free = [client for client, updates in enumerate(left) if updates]
    if len(free) < size:
        return 0
    after = (
        tuple(sorted(n - (client in chosen) for client, n in enumerate(left))) for chosen in combinations(free, size)
    )
    return 1 + min(fewest(rest, size) for rest in set(after))


@pytest.mark.parametrize("population", range(1, 8))
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_as_many_buffers_are_filled_whoever_comes_first_as_is_said(population, cap):
    """No order of arrivals fills fewer, and one of them fills no more, for every buffer up to the whole population."""
    sizes = range(1, population + 1)
    worst = [fewest((cap,) * population, size) for size in sizes]
    assert [Buffered(size=size, per_client=cap, concurrency=1).sure(population) for size in sizes] == worst
