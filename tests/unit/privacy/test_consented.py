"""A permit under two ledgers: the coordinator's and the silo's reservation are both used up, or none is given."""

from __future__ import annotations

import pytest

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.privacy.permits import Consented, Line, mint_reservation


def reserved(*names, count=1, txid="t", test=False):
    return mint_reservation(txid, [Line(name, Unit.RECORD, "e", count) for name in names], test=test)


def test_both_sides_are_used_up():
    """
    One permit of two silos: afterwards neither side has another, and neither can be given back.
    """
    own, north, south = reserved("north", "south"), reserved("north"), reserved("south")
    both = Consented(own, {"north": north, "south": south})

    permit = both.take(["north", "south"], "e")

    assert (permit.txid, permit.serial) == ("t", 1)
    for reservation in (own, north, south, both):
        assert not reservation.void()
        with pytest.raises(PrivacyError, match="not charged for another"):
            reservation.take(["north" if reservation is not south else "south"], "e")


@pytest.mark.parametrize(("own", "silo"), [(2, 1), (1, 2)])
def test_the_smaller_side_decides(own, silo):
    """
    What one ledger charged and the other did not is not drawn.
    """
    both = Consented(reserved("north", count=own), {"north": reserved("north", count=silo)})

    both.take(["north"], "e")
    with pytest.raises(PrivacyError, match="not charged for another"):
        both.take(["north"], "e")


def test_silos_share_no_serial():
    """
    Streams of seeded noise are told apart by serials: two silos with one would draw the same noise.
    """
    both = Consented(reserved("a", "b"), {"a": reserved("a"), "b": reserved("b")})

    assert [both.take([name], "e").serial for name in "ab"] == [1, 2]


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({}, "no silo that consents"),
        ({"a": reserved("a", txid="other")}, "another charge"),
        ({"a": reserved("a", test=True)}, "another charge"),
    ],
)
def test_a_silo_that_did_not_consent_is_found(parts, match):
    """
    Missing, of another charge, or of a test.
    """
    with pytest.raises(PrivacyError, match=match):
        Consented(reserved("a"), parts)


def test_a_silos_reservation_that_was_given_up_permits_nothing():
    """
    The silo aborted: the coordinator's charge alone draws nothing.
    """
    north = reserved("north")
    both = Consented(reserved("north"), {"north": north})
    assert north.void()

    with pytest.raises(PrivacyError, match="not charged for another"):
        both.take(["north"], "e")
