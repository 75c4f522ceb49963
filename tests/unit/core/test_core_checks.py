"""Preconditions: one clear line, in the house form."""

from __future__ import annotations

import math

import pytest

from sordino.core import checks
from sordino.core.errors import (
    BreakerOpen,
    BudgetRefused,
    ConfigError,
    EngineError,
    PrivacyError,
    SordinoError,
    VerificationError,
)

NOT_NUMBERS = [math.nan, math.inf, -math.inf, True, "1", None]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.positive, [1e-9, 1, 1e9], [0, -1]),
        (checks.non_negative, [0, 1], [-1e-9]),
        (checks.fraction, [0.5, 1e-12], [0, 1, -0.1, 1.1]),
        (checks.rate, [1e-9, 1], [0, 1.1]),
    ],
)
def test_ranges(check, good, bad):
    """Ends included or not as the name says; not-numbers and booleans never."""
    for value in good:
        check("here", x=value)
    for value in [*bad, *NOT_NUMBERS]:
        with pytest.raises(ConfigError, match="here: x="):
            check("here", x=value)


@pytest.mark.parametrize("value", [1, 5, 5.0, 10**9])
def test_counts(value):
    """Whole numbers of at least 1, however they are written."""
    checks.count("here", n=value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_not_counts(value):
    """Half a client does not exist."""
    with pytest.raises(ConfigError, match="whole number"):
        checks.count("here", n=value)


def test_every_argument_is_checked():
    """The second one too."""
    with pytest.raises(ConfigError, match="b=-1"):
        checks.positive("here", a=1, b=-1)


def test_unknown_names_come_with_the_nearest():
    """And with all that are known."""
    with pytest.raises(ConfigError, match=r"stage='clpi'.*did you mean 'clip'\? \(known: clip, weight\)"):
        checks.one_of("stages", ["weight", "clip"], stage="clpi")
    assert checks.one_of("stages", ["clip"], stage="clip") == "clip"


def test_nothing_known():
    """An empty registry has no suggestion."""
    assert checks.nearest("x", []) == "(known: none)"


class TestErrors:
    """One tree, one shape, one exit code per family."""

    def test_shape_of_a_message(self):
        """`<where>: <argument>=<value> <rule>; <what to do>`, with parts left out when empty."""
        assert str(ConfigError.about("clip", "must be positive", "try 1.0", norm=-1)) == (
            "clip: norm=-1 must be positive; try 1.0"
        )
        assert str(PrivacyError.about("door", "is closed")) == "door: is closed"

    @pytest.mark.parametrize(
        ("error", "parent", "code"),
        [
            (ConfigError, SordinoError, 2),
            (PrivacyError, SordinoError, 2),
            (BudgetRefused, PrivacyError, 3),
            (BreakerOpen, SordinoError, 4),
            (VerificationError, SordinoError, 5),
            (EngineError, SordinoError, 1),
        ],
    )
    def test_tree(self, error, parent, code):
        """A refused budget is a privacy error; each has the exit code the command line promises."""
        assert issubclass(error, parent)
        assert error.exit_code == code
        assert type(error.about("here", "broke")) is error
