"""Values as declared: clamped, missing, unknown; and WHERE as SQL means it, with SQLite for a judge."""

from __future__ import annotations

import dataclasses
import sqlite3

import numpy as np
import pandas as pd
import pytest

from sordino.core.errors import ConfigError
from sordino.core.types import Unit
from sordino.query import Declared, rows, sql
from sordino.query.declared import Source

DECLARED = Declared(
    name="t",
    ranges={"age": (0, 100), "dose": (-1, 1)},
    categories={"sex": ("f", "m"), "code": ("1", "2")},
    missing="indicator",
)
FRAME = pd.DataFrame(
    {
        "age": [30, np.nan, 65, 65.00004, 150, np.inf, -np.inf, 0.3],
        "dose": [0.1, 0.5, None, -0.3, 9, "much", -2, "0.25"],
        "sex": ["f", "m", None, "f", "x", "m", "f", "m"],
        "code": [1.0, 2.0, None, 1.0, 2.0, 3.0, 1.0, 2.0],
    }
)


@pytest.fixture
def private():
    return rows.encoded(FRAME, DECLARED, Unit.RECORD)


def test_values_are_clamped_rounded_or_missing(private):
    """
    Infinities are clamped, NaN and texts are missing, an undeclared name is missing, a whole float is its number.
    """
    assert private.numbers["age"].tolist() == [300000, 0, 650000, 650000, 1000000, 1000000, 0, 3000]
    assert private.has("age").tolist() == [True, False, *[True] * 6]
    assert private.numbers["dose"].tolist() == [100000, 500000, 0, -300000, 1000000, 0, -1000000, 250000]
    assert private.has("dose").tolist() == [True, True, False, True, True, False, True, True]
    assert private.places["sex"].tolist() == [0, 1, -1, 0, -1, 1, 0, 1]
    assert private.places["code"].tolist() == [0, 1, -1, 0, 1, -1, 0, 1]
    assert "30" not in repr(private)


@pytest.mark.parametrize("column", ["age", "dose", "sex"])
def test_gaps_are_refused_where_the_declaration_refuses_them(column):
    """
    Row by row, and without a word: whether any row has a gap is not told.
    """
    declared = Declared(
        name="t",
        ranges={"age": (0, 100)} if column == "age" else {"dose": (-1, 1)} if column == "dose" else {},
        categories={"sex": ("f", "m")} if column == "sex" else {},
    )
    found = rows.encoded(FRAME, declared, Unit.RECORD)
    everything = rows.encoded(FRAME, dataclasses.replace(declared, missing="indicator"), Unit.RECORD)
    keep = everything.has(column)
    assert 0 < found.size == keep.sum() < everything.size
    assert found.has(column).all()
    for name, part in (everything.numbers | everything.places).items():
        assert (found.numbers | found.places)[name].tolist() == part[keep].tolist()


@pytest.mark.parametrize(
    "odd", ["2.5,much,maybe,x", ",,,", "1e400,99999999999999999999,1,007", "é,0x1,true,1", "1,2,f,1,9"]
)
@pytest.mark.parametrize("first", [True, False])
def test_one_row_of_a_file_changes_how_no_other_is_read(tmp_path, odd, first):
    """
    pandas would take a column's type from all of it: codes that begin with 0 are names only if one of them is none.
    """
    declared = Declared(
        name="t",
        ranges={"age": (0, 100)},
        categories={"zip": ("00", "01", "02"), "flag": ("f", "m"), "n": ("1", "7")},
        missing="indicator",
    )
    others = [f"0{i},{i},{'fm'[i % 2]},{'1.0' if i else '7'}" for i in range(4)]

    def read(lines):
        file = tmp_path / "table.csv"
        file.write_text("\n".join(["zip,age,flag,n", *lines, ""]), encoding="utf-8")
        found = rows.load(Source(declared, file), Unit.RECORD)
        return {name: column.tolist() for name, column in (found.numbers | found.places).items()}

    alone = read(others)
    assert alone["zip"] == [0, 1, 2, -1]
    assert alone["n"] == [1, 0, 0, 0]
    beside = read([odd, *others] if first else [*others, odd])
    assert {name: column[1:] if first else column[:-1] for name, column in beside.items()} == alone


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_two_persons_of_a_parquet_file_never_become_one(tmp_path, kind):
    """
    Beside a gap, whole numbers would be read as floats, and beyond 2^53 two of them are the same.
    """
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    people = [2**53, 2**53 + 1, None]
    file = tmp_path / "table.parquet"
    table = {"who": pa.array(people, getattr(pa, kind)()), "age": pa.array([1, 2, None], pa.int64())}
    pyarrow.parquet.write_table(pa.table(table), file)
    declared = Declared(name="t", ranges={"age": (0, 100)}, person="who", rows_per_person=1, missing="indicator")
    found = rows.load(Source(declared, file), Unit.USER)
    assert found.numbers["age"].tolist() == [10000, 20000]


def test_a_declared_column_must_be_there():
    with pytest.raises(ConfigError, match="no such column"):
        rows.encoded(FRAME.drop(columns="sex"), DECLARED, Unit.RECORD)


@pytest.mark.parametrize(
    "where",
    [
        "age >= 65",
        "age = 65",
        "65 < age",
        "age <> 65",
        "NOT age = 65",
        "dose BETWEEN -0.3 AND 0.1",
        "NOT (dose < 0 OR sex = 'f')",
        "sex IN ('f', 'm')",
        "sex NOT IN ('f')",
        "sex <> 'f' AND dose IS NOT NULL",
        "sex IS NULL OR age IS NULL",
        "NOT (sex = 'm' AND NOT dose > 0)",
        "(age > 60 OR sex = 'm') AND NOT (dose = 0.25 AND code = '2')",
        "age IN (0.3, 30)",
        "age > -5 AND age <= 100.5",
        "NOT NOT sex = 'm'",
    ],
)
def test_conditions_mean_what_sqlite_says(where, private):
    """
    Three values, on the table as it is after clamping and rounding.
    """
    database = sqlite3.connect(":memory:")
    table = pd.DataFrame(
        {
            **{
                name: np.where(private.has(name), private.numbers[name] / 10 ** DECLARED.numbers(name).places, np.nan)
                for name in DECLARED.ranges
            },
            **{
                name: [None if at < 0 else DECLARED.categories[name][at] for at in private.places[name]]
                for name in DECLARED.categories
            },
        }
    )
    database.execute("CREATE TABLE t(n INTEGER, age REAL, dose REAL, sex TEXT, code TEXT)")
    for n, row in enumerate(table.itertuples(index=False)):
        database.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", (n, *(None if pd.isna(v) else v for v in row)))
    expected = {n for (n,) in database.execute(f"SELECT n FROM t WHERE {where}")}  # noqa: S608 - the test's own
    database.close()

    assert set(np.flatnonzero(sql.condition(where).truth(private, DECLARED)[0])) == expected


@pytest.mark.parametrize("bounds", [(1e15, 1e15 + 1), (5, 5), (3, 1), (0, float("inf")), (1,)])
def test_ranges_that_cannot_be_summed_exactly_are_refused(bounds):
    with pytest.raises(ConfigError, match=r"range|narrow"):
        Declared(name="t", ranges={"a": bounds})
