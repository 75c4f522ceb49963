"""A ledger of an earlier layout is brought to the present one whole: same balances, same claims, same bytes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sordino.core.errors import PrivacyError
from sordino.ledger import Ledger, migrations, schema, verify

LAYOUT_1 = Path(__file__).with_name("layout1.sql").read_text(encoding="utf-8")
"""What the first release wrote: two accounts, a plan, a published, a forfeited and a waiting charge."""


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "ledger.db"
    db = sqlite3.connect(path)
    db.executescript(LAYOUT_1)
    db.close()
    return path


def test_it_is_migrated_when_it_is_opened_for_writing(old):
    with Ledger(old) as ledger:
        assert [account.name for account in ledger.accounts()] == ["live", "north"]
        assert {account.scope for account in ledger.accounts()} == {"silo"}
        north = ledger.balance("north")
        assert (north.committed, north.forfeited, north.epsilon_left) == (3, 1, pytest.approx(2 - north.epsilon_used))
        assert ledger.artefact("t2") == b"waiting"
        assert ledger.claim("r1", "north").planned[0][1] == 5
        assert ledger.history()[-1].body == {"from": 1, "to": schema.VERSION}
    report = verify(old, reprice=True)
    assert report.ok, report.problems
    with Ledger(old) as ledger:
        assert ledger.history()[-1].kind == "migrated", "once"
        assert [entry.kind for entry in ledger.history()].count("migrated") == 1


def test_the_guards_of_the_new_layout_stand(old):
    Ledger(old).close()
    db = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
        db.execute("DELETE FROM charge_line")
    with pytest.raises(sqlite3.IntegrityError, match="spent never falls"):
        db.execute("UPDATE account SET spent_units = 0")


def test_a_migration_that_fails_changes_nothing(old, monkeypatch):
    before = old.read_bytes()

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(migrations, "_note", broken)
    with pytest.raises(RuntimeError):
        Ledger(old)
    db = sqlite3.connect(old)
    assert db.execute("SELECT version FROM head").fetchone() == (1,)
    assert db.execute("SELECT count(*) FROM charge").fetchone() == (3,)
    assert len(before) > 0


def test_an_earlier_layout_is_not_read_as_the_present_one(old):
    assert "another layout" in verify(old).problems[0]
    with pytest.raises(PrivacyError, match="another layout"):
        Ledger(old, read_only=True)


def test_a_layout_of_the_future_is_refused(old):
    Ledger(old).close()
    db = sqlite3.connect(old)
    db.execute("DROP TRIGGER head_forward")
    db.execute("UPDATE head SET version = 99")
    db.commit()
    db.close()
    with pytest.raises(PrivacyError, match="another layout"):
        Ledger(old)
