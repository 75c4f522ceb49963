"""One secure sum after another in fewer letters: the same sums, fresh keys, and a new start where somebody was away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from secure_crowd import crowd, plain, terms, vectors, verify

from sordino.core.errors import EngineError, SordinoError
from sordino.federation.secure import STAGES, Advert, Terms
from sordino.federation.secure.ahead import BESIDE, Ahead
from sordino.federation.secure.driving import Party


class Words:
    def __init__(self, words) -> None:
        self._words = words

    def masked(self, mask):
        return mask(self._words)


class Members:
    """All members over several sums, as letters reach them."""

    def __init__(self) -> None:
        self.parties: dict[tuple[int, str], Party] = {}
        self.letters: list[tuple[str, bool]] = []
        self.public: list[bytes] = []
        self.away: set[tuple[int, str, str]] = set()

    def answer(self, member: int, of: Terms, stage: str, request: bytes) -> bytes:
        if stage == "advertise":
            client = crowd(of)[member]
            self.parties[member, of.txid] = Party(client, lambda: Words(vectors(of)[member]))
        said = self.parties[member, of.txid].answer(stage, request)
        if stage == "advertise":
            self.public.append(said)
        return said

    def ask(self, of: Terms, following: Terms | None):
        def both(stage, requests, beside):
            self.letters.append((stage, bool(beside)))
            for member, request in requests.items():
                if (member, of.txid, stage) in self.away:
                    continue
                answer, other = self.answer(member, of, stage, request), None
                if member in beside and (member, of.txid, "beside " + stage) not in self.away:
                    other = self.answer(member, following, BESIDE[stage], beside[member])
                yield member, answer, other

        return both


ROUNDS = [replace(terms(4, 3), txid=f"round {number}") for number in range(4)]
FIRST = [("advertise", False), ("share", False), ("mask", True), ("reveal", True)]
LATER = [("mask", True), ("reveal", True)]


def play(members: Members, ahead: Ahead, number: int, **more) -> tuple[np.ndarray, tuple[int, ...]]:
    following = ROUNDS[number + 1] if number + 1 < len(ROUNDS) else None
    members.letters.clear()
    return ahead.summed(ROUNDS[number], following, verify, members.ask(ROUNDS[number], following), **more)


def right(found, number: int) -> bool:
    total, survivors = found
    return bool((total == plain(ROUNDS[number], [vectors(ROUNDS[number])[own] for own in survivors])).all())


def test_after_the_first_sum_two_letters_each_and_never_a_key_twice():
    members, ahead = Members(), Ahead()
    for number in range(4):
        assert right(play(members, ahead, number), number)
        expected = LATER if number else FIRST
        assert members.letters == (expected if number < 3 else [("mask", False), ("reveal", False)])
    adverts = [Advert.from_bytes(said) for said in members.public]
    assert len({key for advert in adverts for key in (advert.seal_key, advert.mask_key)}) == 2 * 4 * 4


@pytest.mark.parametrize("gone", ["mask", "reveal", "beside mask", "beside reveal"])
def test_with_somebody_missing_the_next_sum_begins_anew_and_has_everybody(gone):
    members, ahead = Members(), Ahead()
    members.away = {(6, "round 1", gone)}
    play(members, ahead, 0)
    found = play(members, ahead, 1)
    assert right(found, 1)
    assert found[1] == ((3, 4, 5) if gone == "mask" else (3, 4, 5, 6))
    found = play(members, ahead, 2)
    assert right(found, 2)
    assert found[1] == (3, 4, 5, 6)
    assert members.letters == FIRST
    play(members, ahead, 3)
    assert members.letters[0] == ("mask", False)


def test_whoever_is_lost_after_beginning_is_left_out():
    """Its shares lie with the others, as those of anybody who is lost between two stages."""
    members, ahead = Members(), Ahead()
    members.away = {(6, "round 1", stage) for stage in STAGES}
    play(members, ahead, 0)
    found = play(members, ahead, 1)
    assert right(found, 1)
    assert found[1] == (3, 4, 5)
    assert members.letters == [("mask", True), ("consent", False), ("reveal", False)]


def test_nothing_is_taken_over_by_another_sum_or_after_somebody_joined_anew():
    members, ahead = Members(), Ahead()
    play(members, ahead, 0, standing=1)
    assert right(play(members, ahead, 2, standing=1), 2)
    assert members.letters == FIRST
    assert right(play(members, ahead, 3, standing=2), 3)
    assert members.letters[0] == ("advertise", False)


def test_a_sum_that_fails_leaves_nothing():
    members, ahead = Members(), Ahead()
    members.away = {(own, "round 0", "reveal") for own in (5, 6)}
    with pytest.raises(EngineError, match="fewer than"):
        play(members, ahead, 0)
    play(members, ahead, 1)
    assert members.letters == FIRST


def test_what_does_not_hold_beside_is_no_fault_of_this_sum():
    """An answer for the other sum's stage that is broken: this sum opens, and the next one begins anew."""
    members, ahead, told = Members(), Ahead(), []
    ask = members.ask(ROUNDS[0], ROUNDS[1])

    def broken(stage, requests, beside):
        for member, answer, other in ask(stage, requests, beside):
            yield member, answer, b"nonsense" if other and member == 5 else other

    found = ahead.summed(ROUNDS[0], ROUNDS[1], verify, broken, lambda *what: told.append(what))
    assert right(found, 0)
    assert told == []
    assert right(play(members, ahead, 1), 1)
    assert members.letters == FIRST


def test_members_answer_each_stage_once_in_the_next_sum_too():
    members, ahead = Members(), Ahead()
    play(members, ahead, 0)
    party = members.parties[3, "round 1"]
    for stage in ("advertise", "share"):
        with pytest.raises(SordinoError, match="was done"):
            party.answer(stage, b"\0\0\0\0")
