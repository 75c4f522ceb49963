"""Partitions, as properties over labels, clients and seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.data.examples import Examples
from sordino.data.partitions import Dirichlet, Iid, Natural, Shards, partitions

labels = st.lists(st.integers(0, 3), min_size=12, max_size=60)
seeds = st.integers(0, 2**32)


def examples(y, client=None):
    y = np.array(y, np.int64)
    return Examples(np.zeros((len(y), 1), np.float32), y, classes=4, client=client)


def total_variation(federated):
    """Mean distance between a client's label shares and those of all."""
    y = federated.examples.y
    overall = np.bincount(y, minlength=4) / len(y)
    shares = [np.bincount(y[rows], minlength=4) / len(rows) for rows in federated.rows]
    return np.mean([abs(share - overall).sum() / 2 for share in shares])


@pytest.mark.parametrize("name", partitions.names())
class TestEveryPartition:
    @given(y=labels, seed=seeds)
    @settings(max_examples=25)
    def test_every_record_has_exactly_one_owner(self, name, y, seed):
        """Clients are non-empty and disjoint, and together hold all records."""
        federated = partitions.example(name).split(examples(y, np.array(y)), seed)

        assert min(federated.sizes) > 0
        assert sorted(np.concatenate(federated.rows).tolist()) == list(range(len(y)))

    def test_equal_seeds_give_equal_clients(self, name):
        """A partition is a function of the data and the seed."""
        data = examples(np.arange(40) % 4, np.arange(40) % 3)
        first, second = (partitions.example(name).split(data, 7) for _ in range(2))

        assert first.names == second.names
        assert all(np.array_equal(a, b) for a, b in zip(first.rows, second.rows, strict=True))

    def test_another_seed_gives_other_clients(self, name):
        """Except for the natural clients, which nobody draws."""
        data = examples(np.arange(40) % 4, np.arange(40) % 3)
        first, second = (partitions.example(name).split(data, seed) for seed in (1, 2))
        same = all(np.array_equal(a, b) for a, b in zip(first.rows, second.rows, strict=True))

        assert same == (name == "natural")


@given(n=st.integers(1, 200), clients=st.integers(1, 30), seed=seeds)
@settings(max_examples=50)
def test_iid_parts_differ_by_at_most_one_record(n, clients, seed):
    """IID clients are of equal size."""
    assume(clients <= n)
    sizes = Iid(clients).split(examples(np.zeros(n)), seed).sizes

    assert max(sizes) - min(sizes) <= 1


@given(clients=st.integers(1, 10), per_client=st.integers(1, 4), seed=seeds)
@settings(max_examples=50)
def test_a_client_of_few_shards_has_few_labels(clients, per_client, seed):
    """A shard that is no longer than a label's run holds at most two labels."""
    data = examples(np.arange(160) % 4)
    federated = Shards(clients, per_client).split(data, seed)

    if clients * per_client >= 4:
        assert max(len(np.unique(data.y[rows])) for rows in federated.rows) <= min(4, 2 * per_client)
    assert max(federated.sizes) - min(federated.sizes) <= per_client


def test_smaller_alpha_means_more_skew():
    """Alpha 0.1 is far from IID, alpha 100 is near, and IID itself is the control."""
    data = examples(np.arange(4000) % 4)
    skewed, mild, control = (
        total_variation(partition.split(data, 3))
        for partition in (Dirichlet(10, alpha=0.1), Dirichlet(10, alpha=100.0), Iid(10))
    )

    assert skewed > 0.4
    assert max(mild, control) < 0.1


def test_dirichlet_draws_again_until_clients_are_large_enough():
    """`min_records` is a floor for every client."""
    federated = Dirichlet(10, alpha=0.3, min_records=20).split(examples(np.arange(2000) % 4), 0)

    assert min(federated.sizes) >= 20


def test_natural_clients_are_those_of_the_data():
    """Names sort by the data's own values, and small clients can be left out."""
    data = examples([0, 1, 2, 3, 0, 1], client=np.array(["b", "a", "b", "c", "b", "a"]))
    federated = Natural(min_records=2).split(data, 0)

    assert dict(zip(federated.names, federated.sizes, strict=True)) == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (Natural(), "names its clients; choose iid"),
        (Iid(9), "clients=9 needs at least 9 records, and there are 8"),
        (Shards(5, 2), "clients=5 per_client=2 needs at least 10 records"),
        (Dirichlet(9, 1.0), "needs at least 9 records"),
        (Dirichlet(8, 0.001), "fewer than 1 records in each of 100 draws; raise alpha"),
    ],
)
def test_impossible_partitions_are_refused(partition, message):
    """The error says what is lacking and what to change."""
    with pytest.raises(ConfigError, match=message):
        partition.split(examples(np.arange(8) % 4), 0)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("iid", {"clients": 0}),
        ("dirichlet", {"clients": 3, "alpha": 0}),
        ("shards", {"clients": 3, "per_client": 0}),
        ("natural", {"min_records": 0}),
        ("iid", {}),
    ],
)
def test_wrong_options_are_refused_before_any_data_is_read(name, table):
    """Options are checked when the partition is built."""
    with pytest.raises(ConfigError):
        partitions.build(name, table)


def test_no_client_large_enough_is_an_error():
    """`min_records` above the largest client leaves nothing."""
    data = examples([0, 1], client=np.array(["a", "b"]))

    with pytest.raises(ConfigError, match="min_records=2 leaves no client: the largest has 1"):
        Natural(min_records=2).split(data, 0)
