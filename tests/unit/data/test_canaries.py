"""Canaries are valid records of nobody, in or out by fair coins that no public number depends on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.seeds import stream
from sordino.data.canaries import Canaries, craft, insert, set_aside
from sordino.data.examples import IGNORE, Examples
from sordino.data.federation import FederatedData


def federation(examples: Examples) -> FederatedData:
    """Two silos of unequal size."""
    third = len(examples) // 3
    return FederatedData(examples, ("north", "south"), (np.arange(third), np.arange(third, len(examples))))


def images(public: bool = False) -> Examples:
    """Thirty small images, none brighter than a half."""
    x = stream(0, "test images").uniform(0, 0.5, (30, 1, 4, 4)).astype(np.float32)
    return Examples(x, np.arange(30) % 3, classes=3, public=public, user=np.arange(30))


def test_candidates_are_valid_and_the_federation_with_them_is_too() -> None:
    """Crafting validates; those that are in join their silo only, behind its own records."""
    data = federation(images())
    canaries = craft(data, "north", 40, seed=1, kind="random")
    joined = insert(data, canaries)
    joined.examples.validated("joined")
    assert joined.sizes == (10 + canaries.included.sum(), 20)
    np.testing.assert_array_equal(joined.silo(0).x[10:], canaries.records.x[canaries.included])
    np.testing.assert_array_equal(joined.silo(0).x[:10], data.silo(0).x)
    assert data.sizes == (10, 20)  # the original is as it was


def test_coins_are_fair_independent_of_the_records_and_of_the_seed_alone() -> None:
    """Two thousand coins; the same seed gives the same, another seed others."""
    data = federation(images())
    one, again, other = (craft(data, "north", 2000, seed=seed, kind="random") for seed in (1, 1, 2))
    assert abs(one.included.mean() - 0.5) < 3.3 * 0.5 / np.sqrt(2000)  # false alarm 1e-3
    assert abs(np.corrcoef(one.included, one.records.x[:, 0, 0, 0])[0, 1]) < 3.3 / np.sqrt(2000)
    assert one.digest == again.digest != other.digest
    assert 800 < (one.included != other.included).sum() < 1200


def test_the_digest_changes_with_a_single_coin() -> None:
    """Who has seen it knows that no coin was turned."""
    canaries = craft(federation(images()), "north", 10, seed=1, kind="random")
    turned = canaries.included.copy()
    turned[3] ^= True
    assert replace(canaries, included=turned).digest != canaries.digest


def test_no_private_value_has_a_part_in_what_is_made() -> None:
    """Other private images, the same canaries; public data may lend their range."""
    private, brighter = images(), replace(images(), x=images().x * 2)
    same = [craft(federation(each), "north", 5, seed=1, kind="random").records.x for each in (private, brighter)]
    np.testing.assert_array_equal(*same)
    public = craft(federation(images(public=True)), "north", 500, seed=1, kind="random").records.x
    assert public.max() <= 0.5 < same[0].max()


def test_every_canary_is_a_person_of_its_own() -> None:
    """Nobody's cap or epsilon is shared with one."""
    for user in (np.arange(30), np.array([f"p{i}" for i in range(30)]), np.array(["p"] * 30, dtype=object)):
        data = federation(replace(images(), user=user))
        records = craft(data, "south", 7, seed=1, kind="random").records
        assert records.user is not None
        assert len(np.unique(records.user)) == 7
        assert not set(records.user) & set(user)


def test_texts_are_random_tokens_that_foretell_themselves() -> None:
    """No padding inside; the target of a place is the next token, of the last none."""
    tokens = np.zeros((30, 8), np.int64)
    data = federation(Examples(tokens, np.full_like(tokens, IGNORE), classes=50, vocabulary=50, padding=7))
    records = craft(data, "north", 200, seed=1, kind="random").records
    assert 7 not in records.x
    assert set(np.unique(records.x)) == set(range(50)) - {7}
    np.testing.assert_array_equal(records.y[:, :-1], records.x[:, 1:])
    assert (records.y[:, -1] == IGNORE).all()


def test_a_table_row_has_one_category_each_and_misses_nothing() -> None:
    """Columns of categories hold a single 1, indicators 0, measures lie in [-1, 1]."""
    features = ("age", "age missing", "sex=f", "sex=m")
    examples = Examples(np.zeros((9, 4), np.float32), np.zeros(9, np.int64), classes=2, features=features)
    x = craft(federation(examples), "north", 100, seed=1, kind="random").records.x
    np.testing.assert_array_equal(x[:, 2] + x[:, 3], 1)
    assert 20 < x[:, 2].sum() < 80
    assert not x[:, 1].any()
    assert -1 <= x[:, 0].min() < -0.5 < 0.5 < x[:, 0].max() <= 1


def test_mislabelled_records_are_public_held_out_and_wrong() -> None:
    """They leave the test part, and none keeps its label."""
    train, test = federation(images(public=True)), federation(images(public=True))
    rest, held = set_aside(test, 12, seed=3)
    assert sum(rest.sizes) == 18
    assert not set(np.concatenate(rest.rows)) & set(np.asarray(held.user))
    canaries = craft(train, "north", 12, seed=3, kind="mislabelled", held=held)
    assert (canaries.records.y != held.y).all()
    np.testing.assert_array_equal(canaries.records.x, held.x)
    with pytest.raises(PrivacyError, match="copies records of people"):
        craft(federation(images()), "north", 12, seed=3, kind="mislabelled", held=held)
    with pytest.raises(ConfigError, match="30 held-out"):
        set_aside(test, 30, seed=3)


def test_counts_that_are_made_with_the_surplus_know_no_coin() -> None:
    """Whatever the coins, realised count and surplus add up to the expected count."""
    records = images()
    for coins in ([True] * 5, [False] * 5, [True, False, True, False, False]):
        canaries = Canaries("north", records.take(np.arange(5)), np.array(coins))
        assert sum(coins) + canaries.surplus == canaries.expected == 2
