"""The secure sum is the plain sum, for every pattern of drop-outs that leaves enough; else there is none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_crowd import NEVER, crowd, plain, terms, vectors, verify

from sordino.core.errors import EngineError
from sordino.federation.secure import STAGES, Terms, played


def agrees(of: Terms, pattern: tuple[int, ...], *, wire: bool = False) -> None:
    """Play one pattern: per client the stage at which it falls silent, or NEVER."""
    stages = dict(zip(of.members, pattern, strict=True))
    lost = {name: {own for own, at in stages.items() if at == number} for number, name in enumerate(STAGES)}
    own = vectors(of)

    def total() -> np.ndarray:
        return played(of, crowd(of), own.items(), lost, verify=verify, wire=wire)

    if sum(at == NEVER for at in pattern) < of.threshold:
        with pytest.raises(EngineError, match="fewer than"):
            total()
    else:
        kept = [own[member] for member, at in stages.items() if at > STAGES.index("mask")]
        np.testing.assert_array_equal(total(), plain(of, kept))


@pytest.mark.parametrize(("clients", "threshold"), [(2, 2), (3, 2), (4, 3)])
def test_every_pattern_of_up_to_four_clients(clients, threshold):
    of = terms(clients, threshold)
    for pattern in itertools.product(range(NEVER + 1), repeat=clients):
        agrees(of, pattern)


@pytest.mark.parametrize(("clients", "threshold"), [(5, 3), (6, 4)])
def test_every_pattern_of_five_and_six_clients_that_leaves_enough(clients, threshold):
    of = terms(clients, threshold)
    for gone in range(clients - threshold + 1):
        for who in itertools.combinations(range(clients), gone):
            for stages in itertools.product(range(NEVER), repeat=gone):
                at = dict(zip(who, stages, strict=True))
                agrees(of, tuple(at.get(place, NEVER) for place in range(clients)))


@settings(max_examples=40)
@given(st.lists(st.integers(0, NEVER), min_size=5, max_size=6), st.integers(1, 62), st.data())
def test_other_patterns_widths_and_thresholds_over_the_wire(pattern, bits, data):
    threshold = data.draw(st.integers(len(pattern) // 2 + 1, len(pattern)))
    agrees(terms(len(pattern), threshold, bits=bits), tuple(pattern), wire=True)


def test_a_vector_longer_than_one_block_of_keystream():
    agrees(terms(3, 2, bits=33, size=2**14 + 3), (NEVER, 2, NEVER), wire=True)


def test_two_hundred_clients_on_a_circle_with_a_fifth_lost():
    """Forty are lost, eight at each stage; the fitted circle gives the sum of those that sent their vector."""
    of = Terms.fitting("round 1", range(200), threshold=150, bits=18, size=2)
    assert of.degree is not None
    assert of.degree < 60
    gone = np.random.default_rng(7).permutation(200)[:40].tolist()
    pattern = [gone.index(own) % NEVER if own in gone else NEVER for own in range(200)]
    agrees(of, tuple(pattern))
