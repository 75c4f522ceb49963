"""The PostgreSQL database under a ledger, for several coordinators. The only file that knows PostgreSQL.

Writers queue at the head of the history: whoever holds that row is the only writer, and sees all that was committed
before. A commit returns when it is on disk, or nothing is released: the server is asked in every transaction. Where a
standby may take over, name it in `synchronous_standby_names`: else it may miss the last commits, as witnesses will see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    URL,
    CheckConstraint,
    ColumnElement,
    Connection,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    func,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import AddConstraint, CreateColumn

from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import migrations, schema
from sordino.ledger.stores import rules
from sordino.ledger.stores.store import Store

OLDEST = 150000
"""The oldest server that the contract suite runs on, as PostgreSQL counts."""

DEMANDED = {"synchronous_commit": ("on", "remote_apply"), "fsync": ("on",)}
"""Settings without which the last commits can be lost: a release without its charge."""

FIRST_LAYOUT = 2
"""The earliest layout that was kept on PostgreSQL."""

_MAKING = 0x536F7264
"""The advisory lock of whoever writes the tables."""


class PostgreSQL(Store):
    """One ledger in the first schema of a server's search path.

    Args:
        url: `postgresql://user@host/database`. The password is better kept in ~/.pgpass or PGPASSWORD.
        read_only: Never write.
        busy_s: How long to wait for another writer's transaction, or for a connection, in seconds.

    Raises:
        ConfigError: The driver is not installed, or the URL cannot be read.
        PrivacyError: The server cannot be used, is too old, or may lose commits.
    """

    def __init__(self, url: str, *, read_only: bool = False, busy_s: float = 30.0) -> None:
        _require_driver()
        found = parsed(url)
        self._hidden = [text for text in (found.password, found.username and f'"{found.username}"') if text]
        options = f"{found.query.get('options', '')} -c lock_timeout={max(1, int(busy_s * 1000))}"
        engine = create_engine(
            found.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
            connect_args={"options": options.strip(), "connect_timeout": max(2, int(busy_s))},
            pool_pre_ping=True,  # a connection that died between two rounds is replaced; one that dies in use refuses
        )
        super().__init__(engine, {"database": public(found)}, read_only=read_only)

    @classmethod
    def exists(cls, url: str) -> bool:
        """Whether a ledger is there.

        Raises:
            PrivacyError: The server cannot be asked.
        """
        asking = _Asking(url, read_only=True)
        try:
            with asking.read() as db:
                return asking.is_made(db)
        finally:
            asking.close()

    def _prepare(self) -> None:
        with self.read() as db:
            self._check_server(db)
            if self.read_only or (self.is_made(db) and not self._earlier(db)):
                self.check_layout(db)
                return
        with self.transaction(isolation_level="READ COMMITTED") as db:
            db.execute(select(func.pg_advisory_xact_lock(_MAKING)))
            if not self.is_made(db):
                self.make(db, _tables(), _triggers())
            elif self._earlier(db):  # nobody else was first
                _migrate(db)
            self.check_layout(db)

    def _earlier(self, db: Connection) -> bool:
        return FIRST_LAYOUT <= self.layout(db) < schema.VERSION

    def _check_server(self, db: Connection) -> None:
        version = int(db.execute(select(func.current_setting("server_version_num"))).scalar_one())
        if version < OLDEST:
            raise PrivacyError.about(
                "ledger", f"needs PostgreSQL {OLDEST // 10000} or newer", "upgrade the server", version=version // 10000
            )
        if not self.read_only:
            self._demand(*db.execute(select(*_settings())).one())

    def _demand(self, *answers: str) -> None:
        for (name, wanted), got in zip(DEMANDED.items(), answers, strict=True):
            if got not in wanted:
                raise PrivacyError.about(
                    "ledger",
                    f"`SHOW {name}` was answered {got!r}: commits may be lost; nothing was released",
                    f"set {name} = on for this role and database",
                    **self.place,
                )

    @contextmanager
    def write(self) -> Iterator[Connection]:
        if self.read_only:
            raise self.refusal("it was opened read-only")
        # READ COMMITTED: what follows the lock sees all that earlier writers left. An older snapshot would not.
        with self.transaction(isolation_level="READ COMMITTED") as db:
            self._demand(*db.execute(select(*_settings()).select_from(schema.head).with_for_update()).one())
            yield db

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.transaction(isolation_level="REPEATABLE READ") as db:
            # Not by an option of the connection, whose reset would undo a server's own read-only default.
            db.exec_driver_sql("SET TRANSACTION READ ONLY")
            yield db

    def reason(self, error: SQLAlchemyError) -> str:
        text = super().reason(error)
        for who in self._hidden:
            text = text.replace(who, "***")
        return text


class _Asking(PostgreSQL):
    """Looks at a server on which there may be no ledger."""

    def _prepare(self) -> None:
        pass


def _settings() -> list[ColumnElement[str]]:
    return [func.current_setting(name, type_=Text()) for name in DEMANDED]


def _require_driver() -> None:
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConfigError.about(
            "ledger", "PostgreSQL needs the extra 'postgresql'", "pip install 'sordino[postgresql]'"
        ) from error


def parsed(url: str) -> URL:
    """The parts of a URL. A message never repeats it: it may hold a password."""
    remedy = "write postgresql://user@host/database, with signs such as @ and / in a password as %40 and %2F"
    try:
        found = make_url(url)
    except (SQLAlchemyError, ValueError):
        raise ConfigError.about("ledger", "the PostgreSQL URL cannot be read", remedy) from None
    if found.get_backend_name() != "postgresql" or "@" in (found.host or "") or not found.database:
        raise ConfigError.about("ledger", "the PostgreSQL URL cannot be read", remedy)
    return found


def public(url: URL) -> str:
    """Where it is, without who asks."""
    port = f":{url.port}" if url.port else ""
    named = url.query.get("host", "local")
    return f"{url.host or (named if isinstance(named, str) else ','.join(named))}{port}/{url.database}"


def _tables() -> MetaData:
    """The schema, with texts in byte order: a server's language changes no order, and no answer."""
    copy = MetaData()
    for table in schema.metadata.sorted_tables:
        for column in table.to_metadata(copy).columns:
            if isinstance(column.type, Text):
                column.type = Text(collation="C")
            elif isinstance(column.type, String):
                column.type = String(column.type.length, collation="C")
    return copy


def _migrate(db: Connection) -> None:
    """Add what an earlier layout lacks: columns with what it meant, tables, indexes; all CHECKs and triggers anew."""
    tables = _tables()
    there = [table for table in tables.sorted_tables if inspect(db).has_table(table.name)]
    # Writers take the head first, so they are done or wait; nobody reads a table half way.
    db.exec_driver_sql(f"LOCK TABLE head, {', '.join(table.name for table in there)} IN ACCESS EXCLUSIVE MODE")
    version, seq, last = db.execute(select(schema.head.c.version, schema.head.c.seq, schema.head.c.hash)).one()
    db.exec_driver_sql("DROP FUNCTION ledger_stop() CASCADE")  # and the triggers that call it
    for table in there:
        _complete(db, table)
    tables.create_all(db)
    for index in [index for table in there for index in table.indexes]:
        index.create(db, checkfirst=True)
    for trigger in _triggers():
        db.exec_driver_sql(trigger)
    row = migrations.event(version, seq, last)
    db.execute(insert(schema.event).values(**row))
    db.execute(update(schema.head).values(seq=row["seq"], hash=row["hash"], version=schema.VERSION))


def _complete(db: Connection, table: Table) -> None:
    old = {column["name"] for column in inspect(db).get_columns(table.name)}
    for column in [column for column in table.columns if column.name not in old]:
        value = migrations.MEANT.get(table.name, {}).get(column.name)
        spec = CreateColumn(column).compile(dialect=db.dialect)
        default = "" if value is None else f" DEFAULT {value!r}"
        db.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {spec}{default}")
        # Code of the earlier layout, still running somewhere, does not write here without knowing of the column.
        db.exec_driver_sql(f"ALTER TABLE {table.name} ALTER COLUMN {column.name} DROP DEFAULT")
    for check in inspect(db).get_check_constraints(table.name):
        db.exec_driver_sql(f'ALTER TABLE {table.name} DROP CONSTRAINT "{check["name"]}"')
    for constraint in table.constraints:
        if isinstance(constraint, CheckConstraint):
            db.execute(AddConstraint(constraint))  # refuses rows that break it


def _triggers() -> Iterator[str]:
    yield (
        "CREATE FUNCTION ledger_stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for name, table, before, broken, message in rules.guards("IS DISTINCT FROM"):
        when = "" if broken is None else f"WHEN ({broken}) "
        yield (
            f"CREATE TRIGGER {name} BEFORE {before} ON {table} FOR EACH ROW {when}"
            f"EXECUTE FUNCTION ledger_stop('{message}')"
        )
    for table in rules.KEPT:  # a TRUNCATE passes by the triggers of rows
        yield (
            f"CREATE TRIGGER {table}_whole BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
            f" EXECUTE FUNCTION ledger_stop('{table}: rows are never deleted')"
        )
