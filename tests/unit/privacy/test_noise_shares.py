"""Noise drawn in shares: one charge, one share per party, sized for those that stay, and nothing to be seen of one."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tiny_door import reserved

from sordino.core.errors import PrivacyError
from sordino.core.seeds import stream
from sordino.core.types import Unit
from sordino.federation.mechanisms.discrete_gaussian import DiscreteGaussian
from sordino.federation.mechanisms.skellam import Skellam
from sordino.federation.secure import Client, Terms, played
from sordino.federation.secure.encoding import Crowd, Encoding
from sordino.ledger.keys import SigningKey
from sordino.privacy import events
from sordino.privacy.kernel import Private, certify
from sordino.privacy.noise import SeededNoise, SystemNoise
from sordino.privacy.permits import SharePermit
from sordino.privacy.shares import Share, ShareDoor, honest

Z, SIZE, BITS = 2.0, 1024, 20
PARTIES = ("a", "b", "c", "d", "e", "f")
ALL = len(PARTIES)


def encoding(crowd=None, **changes):
    return Encoding.fitting(BITS, 1.0, SIZE, crowd or Crowd(len(PARTIES)), noise_multiplier=Z, **changes)


def mechanism(kind, code, shares):
    l2, l1 = code.bound()
    return Skellam(Z, l2, l1) if kind == "skellam" else DiscreteGaussian(Z, l2, l1, shares, code.length)


def door(kind="skellam", *, stay=ALL, code=None, count=1, txid="t", source=None, law=None):
    code = code or encoding(Crowd(len(PARTIES), stay))
    law = law or mechanism(kind, code, stay)
    reservation = reserved(law.event(), count=count, unit=Unit.CLIENT, txid=txid)
    return ShareDoor(law, code, stay, law.event(), ("a",), reservation, source or SeededNoise(1))


def own(vector, l2=1.0):
    return Private(np.atleast_2d(vector), Unit.CLIENT).clip(l2=l2)


def total(shares):
    return sum((share.masked(lambda words: words) for share in shares), np.zeros(SIZE, np.uint64))


def errors(kind, stay, releases=40, twin=1.0):
    """What the honest that stay leave of the noise, over the clip: many releases of zero. Mean square."""
    found = []
    code = encoding(Crowd(len(PARTIES), stay)).at("t")
    for release in range(releases):
        parts = door(kind, stay=stay, code=code, txid=str(release)).parts(PARTIES)
        shares = [parts[party](own(np.zeros(SIZE))) for party in PARTIES[:stay]]
        found.append(code.decode(total(shares)) * twin)
    return float(np.mean(np.square(found)))


@pytest.mark.parametrize("kind", ["skellam", "discrete_gaussian"])
@pytest.mark.parametrize("stay", [3, 6])
def test_the_honest_that_stay_carry_the_whole_noise(kind, stay):
    """Std Z over the clip, to five standard errors; with 3 % less (the twin) it would be found out."""
    exact, tolerance = Z**2, 5 * (2 / (40 * SIZE)) ** 0.5
    assert abs(errors(kind, stay) / exact - 1) < tolerance
    assert abs(errors(kind, stay, twin=0.97) / exact - 1) > tolerance


def test_shares_for_all_are_too_little_once_some_leave():
    """Negative control: sized for six, three carry half of it."""
    code = encoding().at("t")
    parts = door(code=code).parts(PARTIES)
    left = code.decode(total([parts[party](own(np.zeros(SIZE))) for party in PARTIES[:3]]))
    assert np.mean(np.square(left)) < 0.7 * Z**2


class TestPermits:
    """One charge, one release."""

    def test_a_charge_is_divided_once(self):
        """A second division is a second release."""
        one = door()
        one.parts(PARTIES)
        with pytest.raises(PrivacyError, match="not charged"):
            one.parts(PARTIES)

    def test_a_divided_permit_is_used_up(self):
        """Neither whole nor divided again."""
        permit = reserved(events.gaussian(1.0)).take(["a"], events.key(events.gaussian(1.0)))
        permit.shares(["a", "b"])
        with pytest.raises(PrivacyError, match="already drawn"):
            permit.shares(["c"])
        with pytest.raises(PrivacyError, match="already drawn"):
            SystemNoise().skellam(permit, 4.0, 3)

    @pytest.mark.parametrize("parties", [[], ["a", "a"]])
    def test_one_share_each(self, parties):
        """And somebody to draw it."""
        permit = reserved(events.gaussian(1.0)).take(["a"], events.key(events.gaussian(1.0)))
        with pytest.raises(PrivacyError, match="one share per party"):
            permit.shares(parties)

    def test_a_party_draws_once(self):
        """Two of its shares would be two sums with one vector."""
        part = door().parts(PARTIES)["a"]
        part(own(np.zeros(SIZE)))
        with pytest.raises(PrivacyError, match="already drawn"):
            part(own(np.zeros(SIZE)))

    def test_a_share_permit_cannot_be_made_or_copied(self):
        """Nor pickled."""
        permit = reserved(events.gaussian(1.0)).take(["a"], events.key(events.gaussian(1.0)))
        with pytest.raises(PrivacyError, match="by hand"):
            SharePermit(object(), permit, "x")
        (share,) = permit.shares(["a"])
        for steal in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(PrivacyError, match="cannot be copied"):
                steal(share)
        with pytest.raises(PrivacyError, match="cannot change"):
            share.test = False

    def test_a_silo_alone_draws_what_it_would_draw_among_all(self):
        """Seeded shares depend on party and release only, and differ between parties and releases."""

        def words(parties, party, txid="t"):
            return door(txid=txid, code=encoding().at("t")).parts(parties)[party](own(np.ones(SIZE))).masked(np.copy)

        assert np.array_equal(words(PARTIES, "c"), words(["c"], "c"))
        assert not np.array_equal(words(PARTIES, "c"), words(PARTIES, "d"))
        assert not np.array_equal(words(PARTIES, "c"), words(PARTIES, "c", "u"))


class TestShare:
    """Sealed until it is masked."""

    def test_shows_nothing(self):
        """No arithmetic, no conversion, no copy."""
        share = door().parts(PARTIES)["a"](own(np.ones(SIZE)))
        for look in (np.asarray, float, lambda s: s + s, lambda s: s[0], copy.copy, pickle.dumps, list, len):
            with pytest.raises(PrivacyError, match="private"):
                look(share)
        assert repr(share) == "<Share: private>"

    def test_leaves_once(self):
        """The difference of two masked copies could show it."""
        share = door().parts(PARTIES)["a"](own(np.ones(SIZE)))
        assert share.masked(lambda words: words.max()) < 2**BITS
        with pytest.raises(PrivacyError, match="masked already"):
            share.masked(lambda words: words)

    def test_cannot_be_made_by_hand(self):
        """A share without noise."""
        with pytest.raises(PrivacyError, match="by hand"):
            Share(object(), np.zeros(3, np.uint64))


class TestDoor:
    """What was charged is what is drawn, for the bound that holds."""

    def test_sums_with_other_bounds_are_refused(self):
        """Before anything is drawn."""
        part = door().parts(PARTIES)["a"]
        with pytest.raises(PrivacyError, match="further than the noise"):
            part(own(np.ones(SIZE), l2=1.01))
        part(own(np.ones(SIZE)))

    def test_sums_of_other_units_are_refused(self):
        """Noise for clients does not hide what records move."""
        with pytest.raises(PrivacyError, match="another unit"):
            door().parts(PARTIES)["a"](certify(np.ones(SIZE), unit=Unit.RECORD, l2=1.0, alone=True))

    def test_sums_over_many_are_not_rounded_as_one(self):
        """Their bound says nothing of their length."""
        two = own(np.ones(SIZE)).merge(own(np.ones(SIZE)))
        with pytest.raises(PrivacyError, match="one unit's own"):
            door().parts(PARTIES)["a"](two)
        door(code=encoding(alone=False)).parts(PARTIES)["a"](two)

    @pytest.mark.parametrize("change", ["more noise", "coarser", "fewer coordinates", "smaller shares", "gaussian"])
    def test_other_noise_than_charged_is_refused(self, change):
        """Whatever differs."""
        code, kind = encoding(), "discrete_gaussian"
        law = mechanism(kind, code, 6)
        event = law.event()
        stay = 6
        if change == "more noise":
            event = events.discrete_gaussian(Z + 1, event.l2, event.l1, 6, SIZE)
        if change == "coarser":
            law = DiscreteGaussian(Z, event.l2 * 2, event.l1 * 2, 6, SIZE)
            event = law.event()
        if change == "fewer coordinates":
            law = DiscreteGaussian(Z, event.l2, event.l1, 6, 1)
            event = law.event()
        if change == "smaller shares":
            stay = 7
        if change == "gaussian":
            event = events.gaussian(Z)
        with pytest.raises(PrivacyError):
            ShareDoor(law, code, stay, event, ("a",), reserved(event, unit=Unit.CLIENT), SeededNoise(1))


@pytest.mark.parametrize(
    ("terms", "left"), [((20, 15, 0.1), 13), ((6, 6, 0.0), 6), ((10, 7, 0.3), 4), ((3, 2, 0.3), 1)]
)
def test_who_is_honest_at_worst(terms, left):
    """The fewest that stay, less those of the cohort that tell."""
    assert honest(*terms) == left


@pytest.mark.parametrize("terms", [(4, 2, 0.5), (4, 5, 0.0), (4, 3, 1.0), (4, 3, -0.1)])
def test_nobody_honest_is_refused(terms):
    """One line."""
    with pytest.raises(PrivacyError, match="nobody whose noise is secret"):
        honest(*terms)


def test_shares_through_a_real_secure_sum():
    """Five of six stay, one tells its noise: the opened sum is theirs with the planned noise, and never without."""
    stay = honest(6, 5, 1 / 6)
    code = encoding(Crowd(len(PARTIES), stay)).at("t")
    vectors = stream(0, "vectors").normal(size=(6, SIZE))
    parts = door(stay=stay, code=code).parts(PARTIES)
    terms = Terms("t", tuple(range(6)), threshold=5, bits=BITS, size=code.length)
    keys = [SigningKey.generate(party) for party in PARTIES]

    def verify(position, text, signature):
        keys[position].verify(text, signature)

    def sent():
        for position, (party, vector) in enumerate(zip(PARTIES, vectors, strict=True)):
            yield position, parts[party](own(vector)).masked(lambda words: words)

    clients = {u: Client(terms, u, sign=keys[u].sign, verify=verify) for u in range(6)}
    opened = code.decode(played(terms, clients, sent(), {"mask": {2}}, verify=verify))
    clipped = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    error = float(np.mean((opened - np.delete(clipped, 2, axis=0).sum(0)) ** 2))
    assert error == pytest.approx(Z**2 * 5 / stay, rel=0.25)
