"""Permission to draw noise is minted by a ledger, counted, and cannot be made or changed by hand."""

from __future__ import annotations

import copy
import pickle

import pytest
from tiny_door import reserved

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.privacy import events
from sordino.privacy.permits import Line, Permit, Reservation, mint_reservation

EVENT = events.gaussian(1.0)
KEY = events.key(EVENT)


def test_a_permit_cannot_be_made_by_hand():
    """Only a reservation hands them out."""
    with pytest.raises(PrivacyError, match="by hand"):
        Permit(object(), "t", Unit.RECORD, 1, test=False)


def test_a_reservation_cannot_be_made_by_hand():
    """Only a ledger mints them."""
    with pytest.raises(PrivacyError, match="by hand"):
        Reservation(object(), "t", [Line("a", Unit.RECORD, KEY, 1)], test=False)


def test_hands_out_as_many_permits_as_charged():
    """Three charged, three given, and each has a number of its own."""
    reservation = reserved(EVENT, count=3)
    assert [reservation.take(["a"], KEY).serial for _ in range(3)] == [1, 2, 3]
    with pytest.raises(PrivacyError, match="not charged"):
        reservation.take(["a"], KEY)


def test_every_touched_account_pays():
    """A release over two accounts takes from both, and stops at the poorer."""
    lines = [Line("a", Unit.RECORD, KEY, 2), Line("b", Unit.RECORD, KEY, 1)]
    reservation = mint_reservation("t", lines, test=True)
    reservation.take(["a", "b"], KEY)
    with pytest.raises(PrivacyError, match="account='b'"):
        reservation.take(["a", "b"], KEY)
    reservation.take(["a"], KEY)  # the refused attempt took nothing from a


@pytest.mark.parametrize("accounts", [[], ["nobody"], ["a", "nobody"]])
def test_unknown_or_no_accounts_are_refused(accounts):
    """A release that nobody pays for is none."""
    with pytest.raises(PrivacyError):
        reserved(EVENT).take(accounts, KEY)


def test_one_release_protects_one_unit():
    """Accounts of records and of clients cannot share a release."""
    lines = [Line("a", Unit.RECORD, KEY, 1), Line("b", Unit.CLIENT, KEY, 1)]
    with pytest.raises(PrivacyError, match="one and the same unit"):
        mint_reservation("t", lines, test=True).take(["a", "b"], KEY)


def test_a_permit_is_used_up():
    """A second draw is a second release."""
    permit = reserved(EVENT).take(["a"], KEY)
    permit.use()
    with pytest.raises(PrivacyError, match="already drawn"):
        permit.use()


@pytest.mark.parametrize("name", ["test", "unit", "txid", "serial"])
def test_a_permit_cannot_be_changed(name):
    """Marking a real permit as a test would admit predictable noise."""
    permit = reserved(EVENT, test=False).take(["a"], KEY)
    with pytest.raises(PrivacyError, match=f"cannot change its {name}"):
        setattr(permit, name, True)


@pytest.mark.parametrize("name", ["test", "txid", "lines"])
def test_a_reservation_cannot_be_changed(name):
    """The same, one step earlier."""
    with pytest.raises(PrivacyError, match=f"cannot change its {name}"):
        setattr(reserved(EVENT, test=False), name, True)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_neither_is_copied(copied):
    """A copy would draw the noise of one charge twice."""
    reservation = reserved(EVENT, count=2)
    for owner in (reservation, reservation.take(["a"], KEY)):
        with pytest.raises(PrivacyError, match="cannot be copied"):
            copied(owner)
