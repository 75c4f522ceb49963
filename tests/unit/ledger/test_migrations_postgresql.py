"""A PostgreSQL ledger of layout 2 is brought to the present layout whole, once, and with all its guards."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.ledger import Ledger, migrations, schema, verify
from sordino.privacy import events
from sordino.privacy.permits import Line

LAYOUT_2 = Path(__file__).with_name("layout2_postgresql.sql").read_text(encoding="utf-8")
"""What the second layout's code wrote: a plan with a published, a forfeited and a waiting charge, and a query."""

KEY = events.key(events.gaussian(4.0))


@pytest.fixture
def url(postgresql):
    return postgresql


@pytest.fixture
def admin(url):
    import psycopg

    with closing(psycopg.connect(url, autocommit=True)) as db:
        yield db


@pytest.fixture
def old(url, admin):
    admin.execute(LAYOUT_2)
    return url


def laid_out(db):
    """Columns, constraints, indexes and triggers, as the server tells them; columns in no order."""
    queries = (
        (
            "SELECT table_name, column_name, data_type, is_nullable, collation_name, column_default"
            " FROM information_schema.columns WHERE table_schema = current_schema"
        ),
        (
            "SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = current_schema::regnamespace"
        ),
        "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema",
        (
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
            " AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema::regnamespace)"
        ),
    )
    name = db.execute("SELECT current_schema").fetchone()[0]
    rows = [str(row).replace(f"{name}.", "") for query in queries for row in db.execute(query).fetchall()]
    return sorted(rows)


def test_it_is_migrated_and_charged_on(old):
    with Ledger(old) as ledger:
        assert ledger.history()[-1].body == {"from": 2, "to": schema.VERSION}
        north = ledger.balance("north")
        assert (north.committed, north.forfeited) == (2, 1)
        assert ledger.artefact("t2") == b"waiting"
        ledger.open_run("r1")
        reservation = ledger.reserve("t3", "r1", 3, "train", [Line("north", Unit.RECORD, KEY, 1)])
        ledger.commit(reservation, b"later")
        assert ledger.claim("r1", "north").planned[0][1] == 5
        spent = ledger.balance("live").epsilon_used
        ledger.open_run("q1")
        ledger.commit(ledger.reserve("q2", "q1", 1, "query", [Line("live", Unit.RECORD, KEY, 1)]), b"more")
        assert ledger.balance("live").epsilon_used > spent
    report = verify(old, reprice=True)
    assert report.ok, report.problems
    with Ledger(old) as ledger:
        assert [entry.kind for entry in ledger.history()].count("migrated") == 1


def test_it_is_laid_out_as_a_new_one(postgresql_server, old, admin):
    """Every column, CHECK, key, index and trigger: what a migrated ledger lacked, nothing would ever guard."""
    import psycopg

    Ledger(old).close()
    new = postgresql_server.fresh()
    Ledger(new).close()
    with closing(psycopg.connect(new, autocommit=True)) as db:
        assert laid_out(admin) == laid_out(db)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE account SET spent_units = 0", "spent never falls"),
        ("UPDATE account SET tier = 'gold'", "terms never change"),
        ("UPDATE event SET body = ''", "append only"),
        ("DELETE FROM charge_line", "never deleted"),
        ("TRUNCATE quota", "never deleted"),
        ("UPDATE account SET held_units = limit_units + 1", "violates check constraint"),
    ],
)
def test_the_guards_stand(old, admin, change, says):
    Ledger(old).close()
    with pytest.raises(Exception, match=says):
        admin.execute(change)


def test_code_of_the_earlier_layout_writes_no_lines_afterwards(old, admin):
    """It knows nothing of absent silos: a line that does not say is refused."""
    Ledger(old).close()
    line = "INSERT INTO charge_line (txid, account_id, kind_id, count, derived) VALUES ('t0', 2, 1, 1, false)"
    with pytest.raises(Exception, match="null value in column"):
        admin.execute(line)


def test_a_migration_that_fails_changes_nothing(old, admin, monkeypatch):
    before = laid_out(admin)

    def broken(*_):
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "event", broken)
        with pytest.raises(RuntimeError):
            Ledger(old)
    assert laid_out(admin) == before
    assert admin.execute("SELECT version FROM head").fetchone() == (2,)
    Ledger(old).close()
    assert verify(old).ok


def test_rows_that_break_a_guard_stop_it(old, admin):
    """An earlier layout's hole is not carried over in silence."""
    admin.execute("ALTER TABLE charge DROP CONSTRAINT charge_purpose_check")
    admin.execute("ALTER TABLE charge DISABLE TRIGGER USER")
    admin.execute("UPDATE charge SET purpose = 'nothing'")
    with pytest.raises(PrivacyError, match="guard"):
        Ledger(old)
    assert admin.execute("SELECT version FROM head").fetchone() == (2,)


def test_one_of_many_migrates(old):
    """Each has its own connection; the others wait, and find the present layout."""
    errors = []

    def work():
        try:
            Ledger(old).close()
        except PrivacyError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Ledger(old) as ledger:
        assert [entry.kind for entry in ledger.history()].count("migrated") == 1
    assert verify(old).ok


def test_it_waits_for_a_writer(old, admin):
    """An earlier layout's charge that is under way is finished first, and counted."""
    import psycopg

    waiting = threading.Thread(target=lambda: Ledger(old).close())
    with closing(psycopg.connect(old)) as writer:
        writer.execute("SELECT seq FROM head FOR UPDATE")
        waiting.start()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'head'::regclass"
        while admin.execute(blocked).fetchone() == (0,):
            assert waiting.is_alive()
        writer.execute("UPDATE run SET fence = fence + 1 WHERE name = 'q1'")
        writer.commit()
    waiting.join()
    assert admin.execute("SELECT version FROM head").fetchone() == (schema.VERSION,)
    assert admin.execute("SELECT fence FROM run WHERE name = 'q1'").fetchone() == (2,)


def test_it_is_not_read_as_the_present_one(old):
    """Whoever may only read is told what to do, in one line."""
    with pytest.raises(PrivacyError, match=r"another layout than \d; open it once for writing") as error:
        Ledger(old, read_only=True)
    assert "\n" not in str(error.value)
    assert "another layout" in verify(old).problems[0]


def test_a_layout_of_the_future_is_refused(old, admin):
    Ledger(old).close()
    admin.execute("ALTER TABLE head DISABLE TRIGGER USER")
    admin.execute("UPDATE head SET version = 99")
    with pytest.raises(PrivacyError, match="another layout"):
        Ledger(old)
