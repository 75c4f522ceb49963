"""What only PostgreSQL can get wrong: its settings, its connections, its URLs, and its triggers."""

from __future__ import annotations

import sys
import threading
from contextlib import closing

import pytest

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.experiment.config import parse
from sordino.ledger import Account, Ledger, schema, verify
from sordino.ledger.stores import exists, is_url, label, located, postgresql, rules
from sordino.privacy import events
from sordino.privacy.permits import Line

KEY = events.key(events.gaussian(4.0))
FULL_URL = "postgresql://ward:hunter%402@127.0.0.1:1/books"


def opened(url, **options):
    ledger = Ledger(url, **options)
    ledger.open_account(Account("silo", Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-5, "gdp"))
    ledger.open_run("run")
    return ledger


def reserve(ledger, txid="t"):
    return ledger.reserve(txid, "run", 0, "train", [Line("silo", Unit.RECORD, KEY, 1)])


@pytest.fixture
def url(postgresql):
    return postgresql


@pytest.fixture
def admin(url):
    import psycopg

    with closing(psycopg.connect(url, autocommit=True)) as db:
        yield db


class TestDurability:
    @pytest.mark.parametrize("setting", ["off", "local", "remote_write"])
    def test_a_session_that_may_lose_commits_is_refused(self, postgresql_server, setting):
        """I11: with anything weaker than `on`, a crash or a fail-over could forget a charge whose noise is drawn."""
        weak = postgresql_server.fresh(synchronous_commit=setting)
        with pytest.raises(PrivacyError, match=rf"SHOW synchronous_commit.*{setting}.*commits may be lost"):
            Ledger(weak)
        assert not exists(weak)

    def test_it_is_asked_in_every_transaction(self, url):
        """A session that is weakened later releases nothing more; without the question it would go on."""
        with closing(opened(url)) as ledger:
            with ledger._store.engine.connect() as db:
                db.exec_driver_sql("SET synchronous_commit = off")
                db.commit()
            with pytest.raises(PrivacyError, match="commits may be lost"):
                reserve(ledger)
            assert ledger.state("t") is None

    def test_an_old_server_is_refused(self, url, monkeypatch):
        monkeypatch.setattr(postgresql, "OLDEST", 990000)
        with pytest.raises(PrivacyError, match="needs PostgreSQL 99 or newer"):
            Ledger(url)

    @pytest.fixture
    def crashed(self, postgresql_server):
        """Crashes the server when it is called; it runs again afterwards, whatever happens."""
        yield lambda: postgresql_server.stop(postgresql_server.CRASH)
        postgresql_server.stop()
        postgresql_server.start()

    def test_a_crash_of_the_server_loses_no_commit(self, postgresql_server, crashed, url):
        """It stops without a checkpoint, as with the power: what was reserved is there afterwards."""
        with closing(opened(url)) as ledger:
            kept = reserve(ledger)
            crashed()
            with pytest.raises(PrivacyError, match="nothing was released") as error:
                ledger.commit(kept, b"x")
            assert "\n" not in str(error.value)
            with pytest.raises(PrivacyError, match="nothing was released"):
                reserve(ledger, "u")
            postgresql_server.start()
            assert (ledger.state("t"), ledger.state("u")) == ("reserved", None)
            ledger.commit(kept, b"x")
            assert ledger.artefact("t") == b"x"
        assert verify(url).ok


class TestConnections:
    def test_a_connection_that_dies_in_a_transaction_refuses(self, url, admin):
        """Nothing is released, nothing is written, and the next transaction has a new connection."""
        with closing(opened(url)) as ledger:

            def cut():
                with ledger._store.write() as db:
                    db.execute(schema.run.update().values(fence=schema.run.c.fence + 1))
                    pid = db.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                    admin.execute("SELECT pg_terminate_backend(%s)", [pid])

            with pytest.raises(PrivacyError, match="nothing was released"):
                cut()
            reserve(ledger)
        assert verify(url).ok

    def test_a_server_that_takes_no_writes_refuses(self, postgresql_server, url):
        """A standby, or a full one that its operator closed."""
        opened(url).close()
        closed = f"{url}%20-cdefault_transaction_read_only%3Don"
        with closing(Ledger(closed, read_only=True)) as ledger:
            assert ledger.runs() == ["run"]
        with closing(Ledger(closed)) as ledger, pytest.raises(PrivacyError, match=r"read-only.*nothing was released"):
            ledger.open_run("run")

    def test_a_read_only_ledger_writes_nothing(self, url):
        opened(url).close()
        with closing(Ledger(url, read_only=True)) as ledger, ledger._store.read() as db:
            assert db.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on"
        assert not exists(url.replace("books_", "books_none_"))
        with pytest.raises(PrivacyError, match="is not a ledger"):
            Ledger(url.replace("books_", "books_none_"), read_only=True)

    def test_rights_of_roles_are_enough(self, postgresql_server, url):
        """An ordinary role keeps the books; an auditor who may only SELECT reads and verifies, and changes nothing."""
        schema_ = url.rpartition("%3D")[2]
        postgresql_server.run(
            "DROP ROLE IF EXISTS keeper, auditor",
            "CREATE ROLE keeper LOGIN",
            "CREATE ROLE auditor LOGIN",
            f"ALTER SCHEMA {schema_} OWNER TO keeper",
            f"GRANT USAGE ON SCHEMA {schema_} TO auditor",
        )
        keeper, auditor = (url.replace("sordino@", f"{role}@") for role in ("keeper", "auditor"))
        with closing(opened(keeper)) as ledger:
            ledger.commit(reserve(ledger), b"x")
        postgresql_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema_} TO auditor")
        assert verify(auditor).ok
        with closing(Ledger(auditor)) as ledger, pytest.raises(PrivacyError, match=r"permission denied.*nothing was"):
            ledger.open_run("more")
        postgresql_server.run(f"DROP SCHEMA {schema_} CASCADE", "DROP ROLE keeper, auditor")

    def test_many_may_make_it_at_once(self, url):
        """The tables are written by one of them."""
        errors = []

        def work():
            try:
                Ledger(url).close()
            except PrivacyError as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert verify(url).ok

    def test_a_snapshot_does_not_move(self, url):
        """All of an answer is of one moment."""
        with closing(opened(url)) as ledger, closing(Ledger(url)) as other, ledger._store.read() as db:
            before = db.execute(schema.head.select()).one()
            other.open_run("more")
            assert db.execute(schema.head.select()).one() == before


class TestGuards:
    """The triggers hold for whoever has the database's password: even wrong code cannot take a charge back."""

    @pytest.mark.parametrize("table", rules.KEPT)
    def test_no_row_is_deleted(self, url, admin, table):
        with closing(opened(url)) as ledger:
            ledger.commit(reserve(ledger), b"x")
        if admin.execute(f"SELECT count(*) FROM {table}").fetchone() != (0,):  # noqa: S608 - our own table
            with pytest.raises(Exception, match="never deleted"):
                admin.execute(f"DELETE FROM {table}")  # noqa: S608 - our own table
        with pytest.raises(Exception, match="never deleted"):
            admin.execute(f"TRUNCATE {table} CASCADE")

    @pytest.mark.parametrize(
        "change",
        [
            "event SET body = ''",
            "charge_line SET count = 7",
            "kind SET key = 'x'",
            "account SET spent_units = 0",
            "account SET limit_units = limit_units + 1",
            "account SET limit_units = limit_units - 1",
            "account SET policy = policy - 1",
            "account SET currency = 'zcdp'",
            "account SET rdp_order = 2.0",
            "account SET overlap = 1",
            "account SET parent = 'other'",
            "run SET fence = 1",
            "charge SET state = 'aborted'",
            "outbox SET sha256 = repeat('0', 64)",
            "outbox SET published_at = NULL",
            "head SET seq = seq + 2",
        ],
    )
    def test_nothing_goes_back(self, url, admin, change):
        with closing(opened(url)) as ledger:
            ledger.commit(reserve(ledger), b"x")
            ledger.published("t")
        with pytest.raises(Exception, match=r"append only|never"):
            admin.execute(f"UPDATE {change}")

    def test_what_may_move_forward_does(self, url, admin):
        """The control: a limit under a newer policy, a freeze, and a retirement that is for ever."""
        opened(url).close()
        admin.execute("UPDATE account SET limit_units = limit_units + 1, policy = policy + 1")
        for state in ("frozen", "open", "retired"):
            admin.execute("UPDATE account SET state = %s", [state])
        with pytest.raises(Exception, match="never"):
            admin.execute("UPDATE account SET state = 'open'")

    def test_wrong_code_cannot_overspend(self, url, admin):
        opened(url).close()
        with pytest.raises(Exception, match="violates check constraint"):
            admin.execute("UPDATE account SET held_units = limit_units + 1")

    def test_texts_are_in_byte_order(self, url, admin):
        """A server's language sorts `a` before `B`; the books do not."""
        with closing(Ledger(url)) as ledger:
            ledger.open_accounts(
                Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-5, "gdp") for name in ("a", "B", "ä", "C")
            )
            assert [account.name for account in ledger.accounts()] == ["B", "C", "a", "ä"]
        found = admin.execute(
            "SELECT DISTINCT collation_name FROM information_schema.columns"
            " WHERE table_schema = current_schema AND data_type IN ('text', 'character varying')"
        ).fetchall()
        assert found == [("C",)]


class TestPlace:
    def test_a_missing_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(ConfigError, match=r"sordino\[postgresql\]"):
            Ledger(FULL_URL)

    @pytest.mark.parametrize(
        "url",
        [
            FULL_URL,
            "postgresql://ward:hunter%402@no.such.host.invalid/books",
            "postgresql://ward:hunter@2@host/books",
            "postgresql://ward:hunter@host:port/books",
            "postgresql://ward:hunter@host",
            "postgresql://ward:hunter/2@host/books",
        ],
    )
    def test_no_message_holds_credentials(self, url):
        with pytest.raises((ConfigError, PrivacyError)) as error:
            Ledger(url, busy_s=1)
        assert "hunter" not in str(error.value)
        assert "\n" not in str(error.value)
        assert "hunter" not in "".join(verify(url).problems if isinstance(error.value, PrivacyError) else ())

    def test_a_server_that_echoes_a_password_is_silenced(self, postgresql_server):
        """Whatever the server says, the password is not in it."""
        url = (
            postgresql_server.url(search_path="public")
            .replace("sordino@", "sordino:books@")
            .replace("/postgres?", "/books?")
        )
        with pytest.raises(PrivacyError, match=r'database "\*\*\*" does not exist'):
            Ledger(url)

    def test_a_server_that_names_the_user_is_silenced(self, postgresql_server):
        url = postgresql_server.url(search_path="public").replace("sordino@", "stranger@")
        with pytest.raises(PrivacyError, match=r"role \*\*\* does not exist"):
            Ledger(url)

    def test_an_experiment_names_a_server_but_no_password(self, tmp_path):
        """Its file is copied beside every result."""
        assert located("books.db", tmp_path) == tmp_path / "books.db"
        assert located("postgresql://ward@host/books", tmp_path) == "postgresql://ward@host/books"
        for url in (FULL_URL, "postgresql://ward@host/books?password=hunter%402"):
            with pytest.raises(ConfigError, match="holds a password") as error:
                located(url, tmp_path)
            assert "hunter" not in str(error.value)

    def test_a_label_says_where_and_not_who(self, tmp_path):
        assert label(FULL_URL) == "127.0.0.1:1/books"
        assert label(tmp_path / "x.db") == str(tmp_path / "x.db")
        assert not is_url(tmp_path / "postgresql:")


def test_a_run_is_paid_by_a_server(url, heart, capsys):
    """`ledger = "postgresql://…"` in an experiment: a new one is announced, the run's claims are in it, runs add up."""
    from sordino.cli import main

    text = f'ledger = "{url}"\n' + heart.read_text(encoding="utf-8").replace("rounds = 3", "rounds = 1")
    heart.write_text(text, encoding="utf-8")
    assert parse(text).ledger == url
    assert main(["run", str(heart), "--no-compare", "--runs", str(heart.parent / "runs"), "--json"]) in (0, None)
    said = capsys.readouterr().err
    assert "opening a new ledger" in said
    assert "sordino@" not in said
    with closing(Ledger(url, read_only=True)) as ledger:
        (run,) = ledger.runs()
        assert len(ledger.claims(run)) == 4
    assert main(["run", str(heart), "--no-compare", "--runs", str(heart.parent / "runs"), "--json"]) in (0, None)
    assert "opening" not in capsys.readouterr().err
    assert verify(url, reprice=True).ok
