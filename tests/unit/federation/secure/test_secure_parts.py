"""The parts by themselves: shares, packing, bytes of messages, graphs, terms."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from secure_crowd import terms

from sordino.core.errors import ConfigError, EngineError
from sordino.federation.secure import (
    Advert,
    Consent,
    Masked,
    Revealed,
    Sealed,
    Shares,
    Terms,
    graph,
    packing,
    shamir,
)

# shares


@given(st.integers(0, 2**256 - 1), st.integers(1, 6), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_quorum_of_shares_gives_the_secret(secret, quorum, more, random):
    shares = shamir.split(secret, range(1, quorum + more + 1), quorum, os.urandom)
    points = random.sample(sorted(shares), quorum)
    assert shamir.joined(shares, shamir.weights(points)) == secret


def views(split, secret: int, quorum: int) -> Counter:
    """What quorum - 1 holders see, over every polynomial modulo 5."""
    seen = Counter()
    for coefficients in itertools.product(range(5), repeat=quorum - 1):
        drawn = iter(coefficients)
        shares = split(secret, (1, 2, 3, 4), quorum, lambda _, drawn=drawn: bytes([next(drawn)]), 5)
        seen[tuple(shares[point] for point in (1, 3, 4)[: quorum - 1])] += 1
    return seen


def one_degree_short(secret, points, quorum, random, prime):
    return shamir.split(secret, points, quorum - 1, random, prime)


@pytest.mark.parametrize("quorum", [2, 3, 4])
def test_one_share_less_says_nothing_of_the_secret(quorum):
    """Every polynomial is tried: the views are the same for each secret. A degree too low is found out."""
    assert len({frozenset(views(shamir.split, secret, quorum).items()) for secret in range(5)}) == 1
    assert len({frozenset(views(one_degree_short, secret, quorum).items()) for secret in range(5)}) > 1


def test_the_prime_is_one_and_holds_every_secret():
    """By Miller and Rabin's test, to many bases."""
    odd = (shamir.PRIME - 1) & -(shamir.PRIME - 1)
    twos = odd.bit_length() - 1
    for base in range(2, 60):
        power = pow(base, (shamir.PRIME - 1) >> twos, shamir.PRIME)
        assert power == 1 or any(pow(power, 2**i, shamir.PRIME) == shamir.PRIME - 1 for i in range(twos))
    assert shamir.PRIME > 2**256


# packing


@given(st.integers(1, 62), st.integers(1, 40), st.integers(0, 2**32))
def test_packing_is_exact(bits, size, seed):
    values = np.random.default_rng(seed).integers(0, 2**bits, size, dtype=np.uint64)
    data = packing.pack(values, bits)
    assert len(data) == packing.packed_bytes(size, bits)
    number = sum(int(value) << (bits * place) for place, value in enumerate(values))
    assert data == number.to_bytes(len(data), "little")
    np.testing.assert_array_equal(packing.unpack(data, size, bits), values)


@pytest.mark.parametrize("data", [b"\xff\xff\x08", b"\0\0", b"\0\0\0\0"])
def test_bits_and_bytes_behind_the_last_number_are_refused(data):
    with pytest.raises(EngineError):
        packing.unpack(data, 19, 1)


# messages

DIGEST = bytes(range(32))
MESSAGES = [
    Advert(DIGEST, 3, bytes(32), bytes(range(32)), "signature"),
    Sealed(DIGEST, 3, 4, bytes(82)),
    Shares(DIGEST, 3, bytes(32), ((4, bytes(82)), (9, bytes(82)))),
    Masked(DIGEST, 3, b"packed"),
    Consent(DIGEST, 3, "signature"),
    Revealed(DIGEST, 3, ((3, bytes(33)), (4, bytes(33))), ((5, bytes(33)),)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_come_back_and_every_shorter_longer_or_other_text_does_not(message):
    data = message.to_bytes()
    assert type(message).from_bytes(data) == message
    for other in MESSAGES:
        if type(other) is not type(message):
            with pytest.raises(EngineError):
                type(other).from_bytes(data)
    for end in range(len(data)):
        with pytest.raises(EngineError):
            type(message).from_bytes(data[:end])
    for more in (b"\0", bytes(8), bytes(100)):
        with pytest.raises(EngineError):
            type(message).from_bytes(data + more)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_text_with_one_byte_changed_is_refused_or_another_message(message):
    data = message.to_bytes()
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 0x81]) + data[place + 1 :]
        try:
            read = type(message).from_bytes(changed)
        except EngineError:
            continue
        assert read != message
        assert read.to_bytes() == changed


def test_both_shares_of_one_member_are_no_message():
    both = Revealed(DIGEST, 3, ((4, bytes(33)),), ((4, bytes(33)),))
    with pytest.raises(EngineError):
        Revealed.from_bytes(both.to_bytes())
    unsorted = Revealed(DIGEST, 3, ((5, bytes(33)), (4, bytes(33))), ())
    with pytest.raises(EngineError):
        Revealed.from_bytes(unsorted.to_bytes())


# graphs


def test_a_circle_is_regular_symmetric_and_the_same_for_everybody():
    of = Terms.fitting("round 1", range(200), threshold=150, bits=18, size=2)
    again = Terms.fitting("round 1", reversed(range(200)), threshold=150, bits=18, size=2)
    assert again.neighbours == of.neighbours
    assert all(len(others) == of.degree and own not in others for own, others in of.neighbours.items())
    assert all(own in of.neighbours[other] for own, others in of.neighbours.items() for other in others)
    assert replace(of, txid="round 2").neighbours != of.neighbours


def connected(neighbours: dict[int, frozenset[int]], kept: set[int]) -> bool:
    reached, edge = set(), {min(kept)}
    while edge:
        reached |= edge
        edge = {other for own in edge for other in neighbours[own] & kept} - reached
    return reached == kept


def test_a_fitted_circle_holds_together_and_a_thin_one_does_not():
    """A thousand draws of a quarter lost and a twentieth colluding, of 200. The thin circle's bound says so too."""
    draw = np.random.default_rng(3)
    degree, quorum = graph.fitted(200, threshold=150, colluders=10)
    broken = {degree: 0, 4: 0}
    for trial in range(200):
        ring = graph.circle(range(200), trial.to_bytes(2, "big"))
        order = draw.permutation(200).tolist()
        for each in broken:
            broken[each] += not connected(graph.neighbours(ring, each), set(order[60:]))
        near = graph.neighbours(ring, degree)
        assert all(len(others - set(order[:50])) >= quorum for others in near.values())
        assert all(len(others & set(order[50:60])) < quorum for others in near.values())
    assert broken[degree] == 0
    assert broken[4] > 100
    assert graph.leak(200, 4, 3, threshold=150, colluders=10) == 1.0


@pytest.mark.parametrize(
    ("population", "marked", "drawn", "least"), [(199, 10, 34, 3), (999, 250, 60, 30), (9, 3, 5, 4)]
)
def test_the_tail_is_scipys(population, marked, drawn, least):
    exact = stats.hypergeom.sf(least - 1, population, marked, drawn)
    assert graph.tail(population, marked, drawn, least) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize(("clients", "threshold", "colluders"), [(100, 80, 5), (1000, 700, 50), (10_000, 6_000, 500)])
def test_fitted_circles_keep_what_they_promise(clients, threshold, colluders):
    degree, quorum = graph.fitted(clients, threshold=threshold, colluders=colluders)
    assert graph.leak(clients, degree, quorum, threshold=threshold, colluders=colluders) <= 2**-40
    assert graph.loss(clients, degree, quorum, threshold=threshold) <= 2**-20
    assert degree < 120


# terms


@pytest.mark.parametrize(
    "changes",
    [
        {"members": (1,)},
        {"members": (2, 1, 3, 4)},
        {"members": (1, 1, 2, 3)},
        {"members": (-1, 1, 2, 3)},
        {"threshold": 2},
        {"threshold": 5},
        {"threshold": True},
        {"bits": 63},
        {"bits": 0},
        {"size": 0},
        {"quorum": 2},
        {"degree": 3, "quorum": 2},
        {"degree": 4, "quorum": 2},
        {"degree": 2},
        {"degree": 2, "quorum": 4},
    ],
)
def test_terms_that_are_refused(changes):
    with pytest.raises(ConfigError):
        replace(terms(4, 3), **changes)


def test_terms_come_back_and_every_term_changes_the_digest():
    of = terms(6, 4)
    assert Terms.from_bytes(of.to_bytes()) == of
    others = [
        {"txid": "round 2"},
        {"bits": 21},
        {"size": 6},
        {"degree": 4, "quorum": 4},
        {"members": (1, 2, 3, 4, 5, 6)},
    ]
    digests = {replace(of, **changes).digest for changes in others}
    assert len(digests | {of.digest}) == 6
    for data in (b"", b"[]", b"{}", of.to_bytes() + b" ", of.to_bytes().replace(b"6", b"6.0")):
        with pytest.raises(EngineError):
            Terms.from_bytes(data)


def test_more_colluders_than_the_threshold_bears():
    assert terms(4, 4).colluders == 3
    with pytest.raises(ConfigError, match="raise the threshold"):
        Terms.fitting("round 1", range(4), threshold=3, bits=20, size=5, colluders=2)
