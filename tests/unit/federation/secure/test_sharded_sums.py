"""A sharded sum is the plain sum of the shards that have enough left; who is in which, and how many may collude."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from secure_crowd import crowd, verify

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.federation.secure import STAGES, graph
from sordino.federation.secure.driving import Party
from sordino.federation.secure.sharded import Sharded, summed

OF = Sharded("round 1", tuple(range(5, 17)), shards=3, minimum=0.75, bits=10, size=4)


class Plain:
    """A vector where a share of a noised sum would be."""

    def __init__(self, words):
        self.words = words

    def masked(self, mask):
        return mask(self.words)


def values(of, seed=0):
    """Whole numbers around zero, as large as a shard's sum can bear."""
    draw, room = np.random.default_rng(seed), 2 ** (of.bits - 1) // len(of.parts[0].members)
    return {member: draw.integers(-room, room, of.size) for member in of.members}


def ask_of(of, own, lost):
    """Everybody in one process; `lost` is who falls silent at which stage."""
    words = {member: vector.astype(np.uint64) & np.uint64(2**of.bits - 1) for member, vector in own.items()}
    parties = {
        member: Party(client, lambda member=member: Plain(words[member]))
        for part in of.parts
        for member, client in crowd(part).items()
    }

    def ask(stage, requests):
        for member, request in requests.items():
            if STAGES.index(lost.get(member, "reveal")) > STAGES.index(stage) or member not in lost:
                yield member, parties[member].answer(stage, request)

    return ask


def opened(of, own, lost, **more):
    return summed(of, verify, ask_of(of, own, lost), **more)


def signed(total, bits):
    return (total.astype(np.int64) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def expected(of, own, lost):
    """Who is in the sum: of shards that have enough left to the end, all that sent their vector."""
    found = []
    for part in of.parts:
        if sum(member not in lost for member in part.members) >= part.threshold:
            gone = {member for member in part.members if lost.get(member, "reveal") in STAGES[:3]}
            found += [member for member in part.members if member not in gone]
    return sorted(found)


@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("stage", STAGES)
def test_the_plain_sum_with_somebody_lost_in_each_shard(stage, together):
    own, lost = values(OF), {part.members[number]: stage for number, part in enumerate(OF.parts)}
    found = opened(OF, own, lost, together=together)
    inside = expected(OF, own, lost)
    assert found.survivors == tuple(inside)
    assert not found.lost
    assert np.array_equal(signed(found.total, OF.wide), sum(own[member] for member in inside))


@pytest.mark.parametrize("stage", STAGES)
def test_a_shard_below_its_threshold_is_left_out_as_a_whole(stage):
    """Two of four are lost where three are needed: the other two are not in the sum, and count as absent."""
    own, short = values(OF), OF.parts[1].members
    found = opened(OF, own, dict.fromkeys(short[:2], stage), together=3)
    assert found.absent == short
    assert list(found.lost) == [1]
    assert "fewer than the threshold of 3" in found.lost[1]
    rest = [member for member in OF.members if member not in short]
    assert found.survivors == tuple(rest)
    assert np.array_equal(signed(found.total, OF.wide), sum(own[member] for member in rest))


def test_all_patterns_of_who_is_silent_in_two_small_shards():
    of = Sharded("round 2", tuple(range(6)), shards=2, minimum=0.6, bits=8, size=2)
    own = values(of)
    for pattern in itertools.product([False, True], repeat=6):
        lost = {member: "mask" for member, gone in zip(of.members, pattern, strict=True) if gone}
        inside = expected(of, own, lost)
        if not inside:
            with pytest.raises(EngineError, match="too few left"):
                opened(of, own, lost)
        else:
            assert np.array_equal(signed(opened(of, own, lost).total, of.wide), sum(own[m] for m in inside))


def test_totals_of_shards_do_not_wrap():
    """Each shard's sum fits its bits, the total does not; a total modulo the shards' bits, the twin, is wrong."""
    own = {member: np.full(OF.size, 100) for member in OF.members}  # 400 a shard below 512, 1200 in all
    found = opened(OF, own, {})
    assert (signed(found.total, OF.wide) == 1200).all()
    assert (signed(found.total % 2**OF.bits, OF.bits) != 1200).all()


def test_what_nobody_asked_for_is_not_heard():
    own, told = values(OF), []
    honest = ask_of(OF, own, {})

    def ask(stage, requests):
        yield 99, b"I am in no shard"
        yield from honest(stage, requests)
        yield OF.members[0], b"again"

    found = summed(OF, verify, ask, lambda *what: told.append(what))
    assert np.array_equal(signed(found.total, OF.wide), sum(own.values()))
    assert (STAGES[0], 99, "was not asked") in told
    assert {position for _, position, _ in told} == {99, OF.members[0]}


class TestShards:
    """Who is where: public, even, and another deal each time."""

    def test_everybody_is_in_one_shard(self):
        of = Sharded("round 1", tuple(range(0, 2000, 2)), shards=7, minimum=0.8, bits=20, size=1)
        dealt = [member for part in of.parts for member in part.members]
        assert sorted(dealt) == list(of.members)
        assert {len(part.members) for part in of.parts} == {142, 143}
        assert all(member in of.parts[of.shard(member)].members for member in of.members)

    @pytest.mark.parametrize("change", [{"txid": "round 2"}, {"members": (*range(5, 16), 17)}])
    def test_another_release_or_list_is_another_deal(self, change):
        """And no message of one fits into the other."""
        other = replace(OF, **change)
        assert [part.members for part in other.parts] != [part.members for part in OF.parts]
        assert not {part.digest for part in other.parts} & {part.digest for part in OF.parts}

    @pytest.mark.parametrize(
        "change",
        [
            {"shards": 0},
            {"shards": 7},
            {"minimum": 0.5},
            {"minimum": 1.1},
            {"bits": 61},
            {"members": (2, 1, 3, 4, 5, 6)},
        ],
    )
    def test_terms_that_hide_nothing_are_refused(self, change):
        with pytest.raises(ConfigError, match="shards"):
            replace(OF, **change)

    def test_a_stranger_has_no_shard(self):
        with pytest.raises(ConfigError, match="not among the members"):
            OF.shard(4)


class TestColluders:
    """How many of those that may tell meet in one shard."""

    OF = Sharded("round 1", tuple(range(10_000)), shards=100, minimum=0.8, bits=16, size=1)

    def test_more_than_their_share_meet_in_some_shard(self):
        """500 in 100 shards: five each on average, 28 at worst but for a chance of 2^-40."""
        most = self.OF.colluders(500)
        assert self.OF.shards * graph.tail(10_000, 500, 100, most + 1) <= graph.LEAK
        assert self.OF.shards * graph.tail(10_000, 500, 100, most) > graph.LEAK
        assert self.OF.honest(500) == 80 - most
        draw = np.random.default_rng(0)
        deals = draw.hypergeometric(500, 9_500, 100, size=10_000)
        assert 10 < deals.max() <= most  # the mean, five, is passed all the time

    def test_few_colluders_may_all_meet(self):
        assert self.OF.colluders(0) == 0
        assert self.OF.colluders(3) == 3
        assert replace(self.OF, shards=1).colluders(500) == 500

    def test_a_shard_with_nobody_honest_is_refused(self):
        with pytest.raises(PrivacyError, match="nobody whose noise is secret"):
            OF.honest(3)
