"""The tables, in portable SQLAlchemy Core. CHECKs are the last guard: even wrong code cannot overspend.

policy                               under which version an account's limit stands
account ─┬─ admission_line ── admission (run, plan digest)      what a frozen plan was charged
         ├─ quota                                               what else pays, release by release
         ├─ allowance ──────── kind (event key)                 how often it may release what
         └─ charge_line ────── charge (txid) ── outbox          what was reserved; the bytes to publish
run (fence)          event (append-only history) ── head (its last link)
                     checkpoint (signed) ── witness (counter-signed by silos)
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 3
PURPOSES = ("train", "evaluate", "metric", "tune", "query", "synthetic", "clip-quantile", "attack-audit")
STATES = ("reserved", "committed", "forfeited", "aborted")
KINDS = (
    "account-opened",
    "limit-changed",
    "frozen",
    "thawed",
    "retired",
    "policy",
    "admitted",
    "run-opened",
    *STATES,
    "published",
    "consented",
    "refused",
    "checkpoint",
    "witnessed",
    "migrated",
)

metadata = MetaData()


def _in(column: str, names: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(name) for name in names)})")


head = Table(
    "head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    CheckConstraint("id = 1"),
)

account = Table(
    "account",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("unit", Text, nullable=False),
    Column("adjacency", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("rdp_order", Float),
    Column("scope", Text, nullable=False),
    Column("parent", ForeignKey("account.name")),
    Column("overlap", Integer),
    Column("tier", Text),
    Column("state", Text, nullable=False, default="open"),
    Column("policy", Integer, nullable=False, default=0),
    Column("test", Boolean, nullable=False),
    Column("epsilon", Float, nullable=False),
    Column("delta", Float, nullable=False),
    Column("limit_units", BigInteger, nullable=False),
    Column("spent_units", BigInteger, nullable=False, default=0),
    Column("held_units", BigInteger, nullable=False, default=0),
    Column("delta_limit_units", BigInteger, nullable=False),
    Column("delta_spent_units", BigInteger, nullable=False, default=0),
    CheckConstraint("length(name) > 0"),
    _in("unit", ("record", "user", "client")),
    _in("adjacency", ("add_remove", "replace_one", "zero_out")),
    _in("currency", ("plan", "rdp", "gdp", "zcdp", "pure")),
    _in("scope", ("federation", "domain", "silo", "block", "run", "analyst")),
    _in("state", ("open", "frozen", "retired")),
    CheckConstraint("overlap IS NULL OR overlap > 0"),
    CheckConstraint("parent IS NULL OR parent <> name"),
    CheckConstraint("(currency = 'rdp') = (rdp_order IS NOT NULL)"),
    CheckConstraint("limit_units > 0 AND spent_units >= 0 AND held_units >= 0"),
    CheckConstraint("spent_units + held_units <= limit_units"),
    CheckConstraint("delta_limit_units >= 0 AND delta_spent_units >= 0"),
    CheckConstraint("(currency = 'pure') = (delta_limit_units = 0)"),
    CheckConstraint("delta_spent_units <= delta_limit_units"),
)

kind = Table(
    "kind",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
)

admission = Table(
    "admission",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run", Text, nullable=False, unique=True),
    Column("digest", Text, nullable=False),
    Column("delta", Float, nullable=False),
    Column("noise_at", Text, nullable=False),
    _in("noise_at", ("silo", "sum", "coordinator")),
)

admission_line = Table(
    "admission_line",
    metadata,
    Column("admission_id", ForeignKey("admission.id"), primary_key=True),
    Column("account_id", ForeignKey("account.id"), primary_key=True),
    Column("epsilon", Float, nullable=False),
    Column("accountant", Text, nullable=False),
    Column("epsilon_units", BigInteger, nullable=False),
    Column("delta_units", BigInteger, nullable=False),
    # Paid for what the account contains; such accounts have no allowance and no claim of their own.
    Column("derived", Boolean, nullable=False, default=False),
    CheckConstraint("epsilon_units > 0 AND delta_units > 0"),
)

quota = Table(
    "quota",
    metadata,
    # A live account that was named where the plan was admitted: it pays for every release of the run.
    Column("admission_id", ForeignKey("admission.id"), primary_key=True),
    Column("account_id", ForeignKey("account.id"), primary_key=True),
)

allowance = Table(
    "allowance",
    metadata,
    Column("admission_id", ForeignKey("admission.id"), primary_key=True),
    Column("account_id", ForeignKey("account.id"), primary_key=True),
    Column("kind_id", ForeignKey("kind.id"), primary_key=True),
    Column("allowed", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False, default=0),
    Column("spent", BigInteger, nullable=False, default=0),
    CheckConstraint("allowed > 0 AND held >= 0 AND spent >= 0"),
    CheckConstraint("held + spent <= allowed"),
)

run = Table(
    "run",
    metadata,
    Column("name", Text, primary_key=True),
    Column("fence", Integer, nullable=False),
    CheckConstraint("fence > 0"),
)

charge = Table(
    "charge",
    metadata,
    Column("txid", Text, primary_key=True),
    Column("run", ForeignKey("run.name"), nullable=False, index=True),
    Column("round", Integer),
    Column("purpose", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("test", Boolean, nullable=False),
    Column("reserved_at", Text, nullable=False),
    Column("settled_at", Text),
    CheckConstraint("length(txid) > 0"),
    _in("purpose", PURPOSES),
    _in("state", STATES),
    CheckConstraint("(state = 'reserved') = (settled_at IS NULL)"),
)

charge_line = Table(
    "charge_line",
    metadata,
    Column("txid", ForeignKey("charge.txid"), primary_key=True),
    Column("account_id", ForeignKey("account.id"), primary_key=True),
    Column("kind_id", ForeignKey("kind.id"), primary_key=True),
    Column("count", BigInteger, nullable=False),
    # What a live account pays; none where a frozen plan was charged whole.
    Column("units", BigInteger),
    Column("derived", Boolean, nullable=False, default=False),
    # The silo's signed consent, where its own ledger charged the same release; it may come after the charge, once.
    Column("consent", Text),
    # The silo did not answer: it is charged here all the same.
    Column("absent", Boolean, nullable=False, default=False),
    CheckConstraint("units IS NOT NULL OR NOT derived"),
    CheckConstraint("NOT (absent AND derived)"),
    CheckConstraint("count > 0"),
    CheckConstraint("units IS NULL OR units > 0"),
    Index("charge_line_account", "account_id"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("txid", ForeignKey("charge.txid"), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("payload", LargeBinary),
    Column("published_at", Text),
    CheckConstraint("length(sha256) = 64"),
    CheckConstraint("(payload IS NULL) = (published_at IS NOT NULL)"),
)

event = Table(
    "event",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("ts", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("txid", Text),
    Column("body", Text, nullable=False),
    Column("prev", String(64), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    UniqueConstraint("txid", "kind", name="event_once"),
    _in("kind", KINDS),
)

policy = Table(
    "policy",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("signed_by", Text, nullable=False),
    Column("signature", Text, nullable=False),
    CheckConstraint("version > 0"),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("root", String(64), nullable=False),
    Column("note", Text, nullable=False),
)

witness = Table(
    "witness",
    metadata,
    Column("seq", ForeignKey("checkpoint.seq"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("signature", Text, nullable=False),
)
