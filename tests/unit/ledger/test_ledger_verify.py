"""Tampering with a ledger file, by someone who drops the triggers first, is found and named."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, currencies, verify
from sordino.privacy import events
from sordino.privacy.permits import Line

STEP = events.gaussian(4.0)
KEY = events.key(STEP)
SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-5}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A ledger with one charge of each fate."""
    path = tmp_path_factory.mktemp("original") / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open_account(Account("plan", **SHARED))
        ledger.open_account(Account("live", currency="rdp", order=8.0, **SHARED))
        ledger.admit("run", "digest", {"plan": [(STEP, 9)]}, 1e-5, noise_at="silo")
        ledger.open_run("run")
        for txid in ("gone", "published", "committed", "reserved"):
            lines = [Line(name, Unit.RECORD, KEY, 1) for name in ("plan", "live")]
            reservation = ledger.reserve(txid, "run", 0, "train", lines)
            if txid == "gone":
                ledger.forfeit_open("run")
            elif txid != "reserved":
                ledger.commit(reservation, txid.encode())
        ledger.published("published")
    return path


@pytest.fixture
def path(original, tmp_path):
    """A copy to tamper with."""
    return shutil.copy(original, tmp_path / "ledger.db")


def tamper(path, *statements):
    """Run SQL as someone with the file in hand would: no triggers, no checks, no foreign keys."""
    db = sqlite3.connect(path)
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    db.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        assert db.execute(statement).rowcount > 0, statement
    db.commit()
    db.close()
    return verify(path).problems


def test_an_honest_ledger_has_no_problems(path):
    """The control: nothing is found where nothing was done, with prices computed again too."""
    report = verify(path, reprice=True)
    assert (report.ok, report.problems) == (True, ())
    assert report.counts == {
        "account-opened": 2,
        "admitted": 1,
        "run-opened": 1,
        "reserved": 4,
        "forfeited": 1,
        "committed": 2,
        "published": 1,
    }


@pytest.mark.parametrize(
    ("problem", "statements"),
    [
        ("event 3 was edited", ["UPDATE event SET body = replace(body, '9', '8') WHERE seq = 3"]),
        ("event 5 was edited", ["UPDATE event SET ts = '1999' WHERE seq = 5"]),
        ("event 6 is missing", ["DELETE FROM event WHERE seq = 6"]),
        ("event 1 is missing", ["DELETE FROM event WHERE seq = 1"]),
        ("truncated", ["DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)"]),
        (
            "does not follow the one before",
            [
                "UPDATE event SET seq = -5 WHERE seq = 5",
                "UPDATE event SET seq = 5 WHERE seq = 6",
                "UPDATE event SET seq = 6 WHERE seq = -5",
            ],
        ),
        ("cannot be read", ["UPDATE event SET body = '[]' WHERE kind = 'admitted'"]),
        ("account: the row", ["UPDATE account SET spent_units = spent_units - 1 WHERE name = 'plan'"]),
        ("account: the row", ["UPDATE account SET limit_units = limit_units * 2"]),
        ("account: the row", ["UPDATE account SET test = 1"]),
        ("allowance: the row", ["UPDATE allowance SET allowed = allowed + 1"]),
        ("allowance: the row", ["UPDATE allowance SET held = held - 1"]),
        ("admission: the row", ["UPDATE admission SET digest = 'other'"]),
        ("admission_line: the row", ["UPDATE admission_line SET epsilon = 0.1"]),
        ("charge: the row", ["UPDATE charge SET state = 'committed' WHERE state = 'forfeited'"]),
        ("charge: the row", ["UPDATE charge SET state = 'reserved' WHERE state = 'committed'"]),
        ("charge_line: the history tells of", ["DELETE FROM charge_line WHERE txid = 'gone'"]),
        ("charge_line: the row", ["UPDATE kind SET key = replace(key, '4', '9')"]),
        ("run: the row", ["UPDATE run SET fence = 7"]),
        ("not those that were committed", ["UPDATE outbox SET payload = x'00' WHERE txid = 'committed'"]),
        ("outbox: the row", ["UPDATE outbox SET sha256 = replace(sha256, 'a', 'b')"]),
        ("gone before they were published", ["UPDATE outbox SET payload = NULL WHERE txid = 'committed'"]),
        ("outbox: the row", ["INSERT INTO outbox SELECT 'reserved', sha256, NULL, ts FROM outbox, event LIMIT 1"]),
        ("outbox: the history tells of", ["DELETE FROM outbox WHERE txid = 'published'"]),
    ],
)
def test_tampering_is_found(path, problem, statements):
    """I12: an edit, a deletion or a reordering, in the history or beside it."""
    assert any(problem in found for found in tamper(path, *statements))


@pytest.mark.parametrize(
    "table", ["event", "account", "charge", "charge_line", "allowance", "admission", "outbox", "run"]
)
def test_rows_are_never_deleted(path, table):
    """Without dropping a trigger, the database itself refuses."""
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - a table of this test
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{}'",
        "UPDATE account SET spent_units = 0",
        "UPDATE account SET limit_units = limit_units + 1",
        "UPDATE account SET held_units = limit_units + 1",
        "UPDATE account SET delta_spent_units = delta_limit_units + 1 WHERE name = 'plan'",
        "UPDATE charge SET state = 'reserved', settled_at = NULL WHERE state = 'committed'",
        "UPDATE charge_line SET count = 5",
        "UPDATE allowance SET spent = 0",
        "UPDATE allowance SET held = allowed",
        "UPDATE run SET fence = 1",
        "UPDATE outbox SET sha256 = replace(sha256, 'a', 'b')",
        "UPDATE head SET seq = 1",
    ],
)
def test_the_database_guards_itself(path, statement):
    """The last guard: wrong code cannot lower what was spent, raise a limit, overspend or rewrite history."""
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    db.close()


def test_a_history_that_was_wiped_whole_needs_an_earlier_hash(path):
    """A rolled-back copy agrees with itself; a hash from a claim made later tells."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with Ledger(path) as ledger:
        ledger.open_run("run")
        seen = ledger.claim("run", "plan").ledger_sha256
    assert verify(copy).ok
    assert any("rolled back" in problem for problem in verify(copy, expect=[seen]).problems)


def test_a_missing_fence_is_found(tmp_path, monkeypatch):
    """I11: a ledger whose guard was removed lets a replaced owner reserve; the replay says so."""
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(Ledger, "_guard", lambda *_: None)
    with Ledger(path) as old, Ledger(path) as new:
        old.open_account(Account("live", currency="rdp", order=8.0, **SHARED))
        old.open_run("run")
        new.open_run("run")
        old.reserve("t", "run", 0, "train", [Line("live", Unit.RECORD, KEY, 1)])
    assert any("had been replaced" in problem for problem in verify(path).problems)


def test_a_price_that_was_too_low_is_found(tmp_path, monkeypatch):
    """A ledger whose accountant said too little is found by pricing again."""
    path = tmp_path / "ledger.db"
    with monkeypatch.context() as wrong, Ledger(path) as ledger:
        real = currencies.price
        wrong.setattr(currencies, "price", lambda *arguments: real(*arguments) / 2)
        ledger.open_account(Account("live", currency="rdp", order=8.0, **SHARED))
        ledger.open_run("run")
        ledger.reserve("t", "run", 0, "train", [Line("live", Unit.RECORD, KEY, 1)])
    assert verify(path).ok
    assert any("costs more than was charged" in problem for problem in verify(path, reprice=True).problems)


def test_what_is_no_ledger_is_a_problem_and_no_traceback(tmp_path):
    """A missing file, another file, a cut-off file: one line each."""
    other = tmp_path / "other.db"
    other.write_bytes(b"no database at all" * 100)
    empty = tmp_path / "empty.db"
    sqlite3.connect(empty).close()
    for path, words in ((tmp_path / "none.db", "does not exist"), (other, "not a database"), (empty, "not a ledger")):
        report = verify(path)
        assert not report.ok
        assert words in report.problems[0]
