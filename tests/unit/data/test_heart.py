"""The four hospitals' patients that come with the package."""

from __future__ import annotations

import csv
from importlib import resources

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.partitions import Natural

FILE = resources.files("sordino.data").joinpath("files/heart.csv")


@pytest.fixture(scope="module")
def heart():
    """All patients."""
    return datasets.build("heart", {}).load()


def test_hospitals_have_the_patients_that_uci_states(heart):
    """303, 294, 123 and 200 patients; 139, 106, 115 and 149 of them ill (UCI's counts)."""
    federated = Natural().split(heart, 0)
    ill = [int(federated.silo(i).y.sum()) for i in range(4)]

    assert federated.names == ("cleveland", "hungary", "switzerland", "va-long-beach")
    assert federated.sizes == (303, 294, 123, 200)
    assert ill == [139, 106, 115, 149]


def test_row_304_is_put_right(heart):
    """The first Hungarian patient is no longer counted as Cleveland's."""
    assert heart.client[heart.user == "304"].tolist() == ["hungary"]


def test_twenty_nine_features_lie_in_their_public_ranges(heart):
    """Measurements in [-1, 1], all others 0 or a half, so that a record's norm has a public bound."""
    measurements = [i for i, name in enumerate(heart.features) if name in heart.features[:11] and " " not in name]
    others = [i for i in range(29) if i not in measurements]

    assert heart.shape == (29,) == (len(set(heart.features)),)
    assert len(measurements) == 6
    assert abs(heart.x).max() <= 1
    assert set(np.unique(heart.x[:, others])) == {-0.5, 0, 0.5}


def test_impossible_zeros_are_missing_values(heart):
    """A cholesterol of 0 means that nobody measured it: 172 such, and 30 empty cells."""
    chol, missing = (heart.x[:, heart.features.index(name)] for name in ("chol", "chol missing"))

    assert (missing > 0).sum() == 202
    assert (chol[missing > 0] == 0).all()


def test_every_record_is_a_person_and_the_data_is_public(heart):
    """920 people, published under CC BY 4.0, with the licence beside the file."""
    assert len(set(heart.user.tolist())) == 920
    assert heart.public
    assert heart.licence == "CC BY 4.0"
    assert "CC BY 4.0" in resources.files("sordino.data").joinpath("files/heart.LICENSE.txt").read_text()


def changed(tmp_path, column, value):
    """A copy of the file with one cell of the first row changed, or a column renamed."""
    with FILE.open() as file:
        rows = list(csv.reader(file))[:5]
    i = rows[0].index(column)
    rows[0 if value is None else 1][i] = f"{column}s" if value is None else value
    path = tmp_path / "heart.csv"
    path.write_text("\n".join(map(",".join, rows)))
    return str(path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("chol", None, "has no column 'chol'; did you mean 'chols'"),
        ("num", "5", "patient '1' has num '5'; it must be 0 to 4"),
        ("cp", "typical", "row 0 has 'typical', which is none of the categories of column 'cp'; did you mean"),
        ("age", "old", "row 0 has 'old' in column 'age'"),
        ("age", "", "not finite, the first in row 0, column 'age'"),
        ("sex", "x", "row 0 has 'x' in column 'sex'"),
        ("dataset", "", "row 0 names no hospital"),
    ],
)
def test_faults_of_a_file_of_your_own(tmp_path, column, value, message):
    """The error names the row and the column."""
    with pytest.raises(ConfigError, match=f"dataset.heart: .*{message}"):
        datasets.build("heart", {"path": changed(tmp_path, column, value)}).load()


def test_a_file_without_patients_and_a_folder_are_errors(tmp_path):
    """Nothing to learn from."""
    path = tmp_path / "empty.csv"
    path.write_text(FILE.read_text().splitlines()[0])

    with pytest.raises(ConfigError, match="holds no records"):
        datasets.build("heart", {"path": str(path)}).load()
    with pytest.raises(ConfigError, match="is a folder"):
        datasets.build("heart", {"path": str(tmp_path)}).load()
