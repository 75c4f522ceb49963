"""What was released, as plain data with one canonical name."""

from __future__ import annotations

import pytest

from sordino.core.errors import ConfigError
from sordino.privacy import events

EVENTS = [
    events.gaussian(1.5),
    events.laplace(2.0),
    events.poisson(0.1, events.gaussian(1.0)),
    events.poisson(0.1, events.laplace(1.0)),
    events.without_replacement(1000, 100, events.gaussian(2.0)),
    events.truncated_poisson(1000, 0.1, 130, 2.0),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_a_key_names_its_event(event):
    """Round trip through the ledger's text."""
    assert events.from_key(events.key(event)) == event


def test_keys_are_distinct():
    """Different events never share a name."""
    assert len({events.key(event) for event in EVENTS}) == len(EVENTS)


def test_whole_numbers_and_floats_are_one_event():
    """A multiplier of 2 and of 2.0 have the same key."""
    assert events.key(events.gaussian(2)) == events.key(events.gaussian(2.0))


def test_grouping_counts_equal_events():
    """In order of first appearance."""
    one, two = events.gaussian(1.0), events.gaussian(2.0)
    assert events.grouped([(one, 2), (two, 1), (one, 3)]) == ((one, 5), (two, 1))


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_counts_are_whole_and_positive(count):
    """A release cannot be undone."""
    with pytest.raises(ConfigError):
        events.grouped([(EVENTS[0], count)])


@pytest.mark.parametrize("text", ['{"name":"NoSuchEvent"}', '{"name":"os"}', "{}"])
def test_unknown_events_are_refused(text):
    """A ledger line that names no event of dp_accounting."""
    with pytest.raises(ConfigError, match="not an event"):
        events.from_key(text)


@pytest.mark.parametrize("make", [events.gaussian, events.laplace])
@pytest.mark.parametrize("noise", [0, -1.0, float("nan"), float("inf")])
def test_noise_is_finite_and_positive(make, noise):
    """Neither none nor infinitely much."""
    with pytest.raises(ConfigError):
        make(noise)


def test_rate_one_is_no_sampling():
    """So that equal releases have equal names."""
    assert events.poisson(1, events.gaussian(1.0)) == events.gaussian(1.0)


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, float("nan")])
def test_rates_lie_in_the_unit_interval(rate):
    """Zero would release nothing and charge nothing."""
    with pytest.raises(ConfigError):
        events.poisson(rate, events.gaussian(1.0))
