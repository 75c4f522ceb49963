"""Who holds which records."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData, pooled

EXAMPLES = Examples(
    np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1]), classes=2, user=np.array([5, 5, 6, 6])
)


def rows(*groups):
    return tuple(np.array(group, np.int64) for group in groups)


def test_a_silo_holds_its_own_rows_and_people():
    """Inputs, labels and users of a silo are those of its rows."""
    silo = FederatedData(EXAMPLES, ("north", "south"), rows([0, 3], [2])).silo(0)

    assert (silo.name, len(silo)) == ("north", 2)
    assert silo.x.tolist() == [[0, 1], [6, 7]]
    assert silo.y.tolist() == [0, 1]
    assert silo.user.tolist() == [5, 6]


def test_writing_to_a_silo_leaves_the_data_alone():
    """Silos are copies, so that local work cannot change another's records."""
    data = FederatedData(EXAMPLES, ("north",), rows([0]))

    data.silo(0).x[:] = -1

    assert data.silo(0).x.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("names", "groups", "message"),
    [
        (("a", "b"), rows([0], []), "name='b' holds no records"),
        (("a", "b"), rows([0, 1], [1]), "row 1 is held twice"),
        (("a",), rows([0, 0]), "row 0 is held twice"),
        (("a", "a"), rows([0], [1]), "name='a' stands for two clients"),
        (("a",), rows([4]), "outside the 4 records"),
        (("a",), rows([0], [1]), "1 names for 2 clients"),
        ((), (), "0 names"),
    ],
)
def test_impossible_federations_are_refused(names, groups, message):
    """Clients are named apart, disjoint and not empty."""
    with pytest.raises(ConfigError, match=message):
        FederatedData(EXAMPLES, names, groups)


def test_a_misspelt_client_is_offered_the_nearest():
    """The error names the client that was probably meant."""
    data = FederatedData(EXAMPLES, ("cleveland", "hungary"), rows([0], [1]))

    assert data.index("hungary") == 1
    with pytest.raises(ConfigError, match="did you mean 'cleveland'"):
        data.index("clevland")


def test_pooled_records_are_all_records_of_all_clients():
    """Pooling forgets who holds what, and nothing else."""
    x, y = pooled(FederatedData(EXAMPLES, ("a", "b"), rows([3], [0, 1])))

    assert x[:, 0].tolist() == [6, 0, 2]
    assert y.tolist() == [1, 0, 1]


def test_a_silo_that_is_elsewhere_counts_and_cannot_be_read():
    """Its row numbers lie past the last record; a row that is here cannot be called elsewhere."""
    away = np.broadcast_to(np.int64(4), (1_000_000,))
    data = FederatedData(EXAMPLES, ("north", "south"), (np.arange(4), away), frozenset({"south"}))
    assert data.sizes == (4, 1_000_000)
    assert len(data.silo(0)) == 4
    with pytest.raises(ConfigError, match="elsewhere"):
        data.silo(1)
    with pytest.raises(ConfigError, match="elsewhere"):
        pooled(data)
    with pytest.raises(IndexError):
        EXAMPLES.take(away)
    with pytest.raises(ConfigError, match="its rows are here"):
        FederatedData(EXAMPLES, ("north", "south"), rows([0], [1]), frozenset({"south"}))
    nobody = FederatedData(EXAMPLES, (), (), frozenset({"south"}))
    with pytest.raises(ConfigError, match="elsewhere"):
        pooled(nobody)
