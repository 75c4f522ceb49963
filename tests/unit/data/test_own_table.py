"""A CSV or Parquet file of the user's own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.encoding import categorical, measured
from sordino.data.partitions import Natural

pd = pytest.importorskip("pandas")

FRAME = {
    "hospital": ["north", "north", "south"],
    "person": [11, 12, 12],
    "age": [20, 150, 50],
    "sex": ["f", "m", "f"],
    "ill": ["no", "yes", "no"],
}
TABLE = {
    "label": "ill",
    "client": "hospital",
    "user": "person",
    "ranges": {"age": [0, 100]},
    "categories": {"sex": ["f", "m"]},
    "classes": ["no", "yes"],
}


def load(tmp_path, frame=None, *, suffix=".csv", **options):
    path = tmp_path / f"mine{suffix}"
    data = pd.DataFrame({**FRAME, **(frame or {})})
    if suffix == ".csv":
        data.to_csv(path, index=False)
    else:
        data.to_parquet(path)
    table = {key: value for key, value in {**TABLE, "path": str(path), **options}.items() if value is not None}
    return datasets.build("table", table).load()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_both_formats_give_the_same_examples(tmp_path, suffix):
    """Ranges scale and clamp, categories spread out, the client and the person are no features."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    examples = load(tmp_path, suffix=suffix)

    assert examples.features == ("age", "sex=f", "sex=m")
    assert examples.x.tolist() == [[np.float32(-0.6), 1, 0], [1, 0, 1], [0, 1, 0]]
    assert examples.y.tolist() == [0, 1, 0]
    assert examples.user.tolist() == ["11", "12", "12"]
    assert Natural().split(examples, 0).names == ("north", "south")
    assert not examples.public


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        ({"until": "2026-01-01"}, ["20"]),
        ({"since": "2026-01-01", "until": "2026-04-01"}, ["60"]),
        ({"until": "2026-04-01"}, ["20", "60"]),
        ({"since": "2026-04-01T02:00:00+02:00", "until": "2027-01-01"}, ["80"]),
    ],
)
def test_only_records_of_the_window_are_read(tmp_path, window, kept):
    """To the edge: closed on the left, open on the right, and what has no time is not read."""
    days = ["2025-12-31T23:59:59.999999", "2026-01-01", "2026-04-01T00:00:00Z", "", "soon", "7"]
    ages = [20, 60, 80, 1, 2, 3]
    frame = {
        "hospital": ["north"] * 6,
        "person": range(6),
        "age": ages,
        "sex": ["f"] * 6,
        "ill": ["no"] * 6,
        "day": days,
    }
    path = tmp_path / "mine.csv"
    pd.DataFrame(frame).to_csv(path, index=False)
    found = datasets.build("table", {**TABLE, "path": str(path), "ranges": {"age": [0, 200]}, "when": "day", **window})
    examples = found.load()
    assert examples.features == ("age", "sex=f", "sex=m")
    assert [f"{100 * (x + 1):.0f}" for x in examples.x[:, 0]] == kept


@pytest.mark.parametrize(
    "window",
    [
        {"when": "day"},
        {"until": "7"},
        {"since": "7"},
        {"when": "day", "since": "7", "until": "7"},
        {"when": "day", "until": "soon"},
        {"when": "day", "since": "7", "until": "2026-01-01"},
    ],
)
def test_a_window_that_is_none_is_refused(window):
    with pytest.raises(ConfigError):
        datasets.build("table", {**TABLE, "path": "mine.csv", **window})


def test_another_record_never_changes_how_one_is_encoded(tmp_path):
    """Nothing is learnt from the data: a neighbouring table encodes the shared rows alike."""
    whole = load(tmp_path)
    changed = load(tmp_path, {"age": [20, 150, 99], "sex": ["f", "m", "m"]})

    assert whole.x[:2].tolist() == changed.x[:2].tolist()


def test_classes_default_to_the_sorted_labels(tmp_path):
    """Numbers by size, whatever type holds them; for public data only, since which labels occur is private."""
    examples = load(tmp_path, {"ill": [10.0, 2.0, 10.0]}, classes=None, public=True)

    assert (examples.y.tolist(), examples.classes) == ([1, 0, 1], 2)
    with pytest.raises(ConfigError, match="needs classes"):
        load(tmp_path, {"ill": [10.0, 2.0, 10.0]}, classes=None)


def test_missing_values_can_be_features(tmp_path):
    """With indicators, a gap is 0 and says so; a missing category is all 0."""
    frame = {"age": [20, None, 50], "sex": ["f", "m", None]}
    examples = load(tmp_path, frame, missing="indicator")

    assert examples.features == ("age", "age missing", "sex=f", "sex=m")
    assert examples.x[1].tolist() == [0, 1, 0, 1]
    assert examples.x[2].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        ({}, {"label": "il"}, "has no column 'il'; did you mean 'ill'"),
        ({}, {"client": "hospitol"}, "has no column 'hospitol'; did you mean 'hospital'"),
        ({}, {"features": ["agee"]}, "has no column 'agee'; did you mean 'age'"),
        ({}, {"ranges": {"aged": [0, 1]}}, "has no column 'aged'"),
        ({}, {"features": ["age", "ill"]}, "label='ill' is the label and a feature"),
        ({}, {"features": []}, "has no feature columns"),
        ({}, {"categories": {}}, "column 'sex' is not numeric; list its public values in categories.sex"),
        ({}, {"categories": {"sex": ["f", "w"]}}, "row 1 has 'm', which is none of the categories of column 'sex'"),
        ({}, {"classes": ["yes", "non"]}, "a label is none of the classes; known: yes, non"),
        ({"age": [20, None, 50]}, {}, "column 'age' lacks 1 values"),
        ({"age": [20, np.inf, 50]}, {"ranges": {}}, "not finite, the first in row 1, column 'age'"),
        ({"ill": ["no", None, "yes"]}, {}, "row 1 has nothing in column 'ill'"),
        ({"hospital": ["a", " ", "b"]}, {}, "row 1 has nothing in column 'hospital'"),
        ({"person": [1, 2, None]}, {}, "row 2 has nothing in column 'person'"),
    ],
)
def test_every_fault_is_one_clear_line(tmp_path, frame, options, message):
    """The error names the column, and the row where there is one."""
    with pytest.raises(ConfigError, match=f"dataset.table: .*{message}") as caught:
        load(tmp_path, frame, **options)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"ranges": {"age": [1, 0]}},
        {"ranges": {"age": [0]}},
        {"ranges": {"age": [0, float("inf")]}},
        {"categories": {"sex": []}},
        {"categories": {"sex": ["f", "f"]}},
        {"ranges": {"sex": [0, 1]}},
    ],
)
def test_wrong_options_are_refused_before_the_file_is_read(options):
    """Ranges have two ends in order, categories are different values, no column has both."""
    with pytest.raises(ConfigError, match=r"dataset\.table"):
        datasets.build("table", {**TABLE, "path": "nowhere.csv", **options})


def test_files_that_are_no_tables(tmp_path):
    """Empty, headed but empty, and not Parquet at all."""
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("age,ill\n")
    (tmp_path / "c.parquet").write_bytes(b"not parquet")
    for name, message in (("a.csv", "cannot be read"), ("b.csv", "holds no records"), ("c.parquet", "cannot be read")):
        with pytest.raises(ConfigError, match=message):
            datasets.build("table", {"path": str(tmp_path / name), "label": "ill"}).load()


def test_without_pandas_the_extra_is_named(tmp_path, monkeypatch):
    """The error says what to install."""
    path = tmp_path / "mine.csv"
    path.write_text("age,ill\n1,0\n")
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(ConfigError, match=r"pip install 'sordino\[tables\]'"):
        datasets.build("table", {"path": str(path), "label": "ill"}).load()


def test_measurements_and_categories_are_bounded():
    """Whatever the values, encoded columns lie in [-1, 1]."""
    _, numbers = measured("x", np.array([-1e300, 0.0, 1e300, np.nan]), (-2, 6), indicator=True)
    _, names = categorical("mine", "x", ["a", None], ["a", "b"])

    assert numbers.tolist() == [[-1, 0], [-0.5, 0], [1, 0], [0, 1]]
    assert names.tolist() == [[1, 0], [0, 0]]


def test_one_record_renames_no_person(tmp_path):
    """Whether 07 is read as 7 must not depend on somebody else's name: a name decides who is held out."""
    whole = {"person": ["07", "08", "09"], "hospital": ["01", "01", "02"]}
    odd = {"person": ["07", "08", "x"], "hospital": ["01", "01", "y"]}
    one, other = load(tmp_path, whole), load(tmp_path, odd)
    assert one.user[:2].tolist() == other.user[:2].tolist() == ["07", "08"]
    assert one.client[:2].tolist() == other.client[:2].tolist() == ["01", "01"]


@pytest.mark.parametrize("missing", ["refuse", "indicator"])
def test_a_stand_in_has_the_form_of_what_a_file_holds(tmp_path, missing):
    """From declarations alone, down to the columns' names; it belongs to nobody."""
    table = TABLE | {"features": ["age", "sex"], "missing": missing}
    made = datasets.build("table", table).stand_in().validated("stand-in")
    path = tmp_path / "mine.csv"
    pd.DataFrame(FRAME).to_csv(path, index=False)
    read = datasets.build("table", table | {"path": str(path)}).load()
    assert (len(made), made.client, made.user, made.public) == (1, None, None, False)
    for name in ("shape", "classes", "features", "vocabulary"):
        assert getattr(made, name) == getattr(read, name)


@pytest.mark.parametrize("key", ["features", "classes"])
def test_what_a_file_would_say_must_be_declared_for_a_stand_in(key):
    table = {name: value for name, value in (TABLE | {"features": ["age"]}).items() if name != key}
    with pytest.raises(ConfigError, match=r"features and classes|needs classes"):
        datasets.build("table", table | {"public": True}).stand_in()
