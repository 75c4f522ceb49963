"""`sordino query`: the price first, one line for an error, exit codes of its own, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patients import BY_SEX, TOML, account, books

from sordino.cli import main
from sordino.ledger import verify

ROOT = Path(__file__).parents[3]


@pytest.fixture
def silo(tmp_path):
    (tmp_path / "patients.toml").write_text(TOML)
    books(tmp_path, account(epsilon=1.0), account("plans", "plan")).close()
    return tmp_path


def arguments(silo, text=BY_SEX, *more, epsilon="0.4", name="north"):
    terms = ["--epsilon", epsilon, "--ledger", silo / "north.db", "--account", name]
    return [str(part) for part in ("query", silo / "patients.toml", text, *terms, *more)]


def failed(capsys, *called):
    with pytest.raises(SystemExit) as stopped:
        main(list(*called))
    told = capsys.readouterr()
    assert told.out == ""
    return stopped.value.code, told.err.strip().splitlines()[-1]


def test_price_then_answer_then_the_end_of_the_budget(silo, capsys):
    main(arguments(silo, BY_SEX, "--price"))
    assert capsys.readouterr().out == "account 'north': costs 0.4 of pure, leaves 0.6, 1 more like this\n"

    main(arguments(silo))
    first = capsys.readouterr()
    assert "costs 0.4 of pure" in first.err
    assert all(word in first.out for word in ("Female", "Male", "Other", "COUNT(*)", "AVG(age)"))

    main(arguments(silo))
    again = capsys.readouterr()
    assert again.out == first.out
    assert "costs nothing: it was answered before" in again.err

    main(arguments(silo, BY_SEX, "--again", "1"))
    assert capsys.readouterr().out != first.out
    code, line = failed(capsys, arguments(silo, BY_SEX, "--again", "2"))
    assert code == 3
    assert line.startswith("BudgetExhausted: account 'north': needs 0.4 of pure and 0.2 is left")
    assert "epsilon=0.2 would fit" in line
    assert verify(silo / "north.db").problems == ()


def test_json(silo, capsys):
    main(arguments(silo, BY_SEX, "--json"))
    answer = json.loads(capsys.readouterr().out)
    assert answer["by"] == ["sex"]
    assert [f["group"]["sex"] for f in answer["figures"]] == [s for s in ("Female", "Male", "Other") for _ in range(2)]
    assert {"name", "value", "standard_error", "low", "high"} <= answer["figures"][0].keys()
    assert answer["price"]["cost"] == 0.4

    main(arguments(silo, BY_SEX, "--price", "--json"))
    assert json.loads(capsys.readouterr().out)["answered"] is True


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"text": "SELECT MAX(age) FROM patients"}, "MAX(age) is not supported"),
        ({"name": "south"}, "account='south' is not open"),
        ({"name": "plans"}, "pays whole plans"),
        ({"epsilon": "0"}, "epsilon=0.0 must be a finite number above 0"),
    ],
)
def test_bad_input_is_one_line_and_code_2(changes, line, silo, capsys):
    code, told = failed(capsys, arguments(silo, **changes))
    assert (code, line in told) == (2, True)


def test_a_ledger_that_is_not_there_is_not_made(silo, capsys):
    called = [part.replace("north.db", "new.db") for part in arguments(silo)]
    assert failed(capsys, called)[0] == 2
    assert not (silo / "new.db").exists()


def test_the_price_needs_neither_torch_nor_opendp(silo):
    code = (
        "import sys\n"
        "from sordino.cli import main\n"
        f"main({arguments(silo, BY_SEX, '--price')!r})\n"
        "assert not {'torch', 'opendp', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("missing", ["opendp", "sqlglot"])
def test_a_missing_extra_is_named_before_anything_is_charged(missing, silo, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setitem(sys.modules, f"{missing}.prelude", None)
    code, line = failed(capsys, arguments(silo))
    assert (code, "pip install 'sordino[query]'" in line) == (2, True)
    with books(silo, account(epsilon=1.0)) as ledger:
        assert ledger.balance("north").epsilon_used == 0


def test_the_example_can_be_asked(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    books(tmp_path, account()).close()
    terms = ["--epsilon", "0.5", "--ledger", str(tmp_path / "north.db"), "--account", "north", "--price"]
    main(["query", "examples/query/patients.toml", "SELECT num, MEDIAN(age) FROM patients GROUP BY num", *terms])
    assert "costs 0.5" in capsys.readouterr().out
