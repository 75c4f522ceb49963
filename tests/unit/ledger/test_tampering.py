"""An attacker with full access to the file, who makes every hash and balance anew, is found and placed.

Each test says what the attacker could do; where only a key or a witness finds it, the test also shows that the file
alone does not, so that a test which would pass by accident fails.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import shutil
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sordino.core.errors import VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, history, merkle, verify, witnesses
from sordino.ledger.checkpoints import Checkpoint
from sordino.ledger.export import export, verify_export
from sordino.ledger.keys import SigningKey
from sordino.ledger.notes import Note
from sordino.ledger.witnesses import Witness
from sordino.privacy import events
from sordino.privacy.permits import Line

STEP = events.gaussian(4.0)
KEY = events.key(STEP)
SHARED = {"unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-5}
COORDINATOR, CLINIC = SigningKey.generate("coordinator"), SigningKey.generate("clinic-a")
UNITS = 62_500_000_000  # what one release with noise 4 costs in 1e-12 of mu^2


@dataclass(frozen=True)
class Case:
    """A ledger, what a silo keeps of it, a backup from half-way, and a hash from a claim at its end."""

    path: Path
    memory: Path
    backup: Path
    sha256: str

    def verify(self, *, keys=(), notes=(), expect=(), silos=()):
        return verify(self.path, keys=keys, witnesses=notes, expect=expect, silos=silos)

    def alone(self):
        return self.verify()

    def with_key(self):
        return self.verify(keys=[COORDINATOR.public], silos=[CLINIC.public])

    def with_witness(self):
        return self.verify(notes=witnesses.read(self.memory))


def release(ledger, txid, *, publish=True):
    """One published release of both accounts."""
    reservation = ledger.reserve(
        txid, "run", 0, "train", [Line(name, Unit.RECORD, KEY, 1) for name in ("plan", "live")]
    )
    ledger.commit(reservation, txid.encode())
    if publish:
        ledger.published(txid)


def show(ledger, witness):
    """The silo sees the newest checkpoint, and its countersignature is kept."""
    growth = ledger.growth(witness.size(COORDINATOR.name))
    ledger.witnessed(growth.note, witness.see(growth.note, growth.proof), CLINIC.public)


def begin(path):
    """A ledger with two accounts and an open run."""
    ledger = Ledger(path, key=COORDINATOR)
    ledger.open_account(Account("plan", **SHARED))
    ledger.open_account(Account("live", currency="gdp", **SHARED))
    ledger.admit("run", "digest", {"plan": [(STEP, 9)]}, 1e-5, noise_at="silo")
    ledger.open_run("run")
    return ledger


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Six releases; the silo saw the history after the first three and after all."""
    folder = tmp_path_factory.mktemp("original")
    witness = Witness(folder / "memory.jsonl", CLINIC, [COORDINATOR.public])
    with begin(folder / "ledger.db") as ledger:
        for txid in ("a", "b", "c"):
            release(ledger, txid)
        show(ledger, witness)
    shutil.copy(folder / "ledger.db", folder / "backup.db")
    with Ledger(folder / "ledger.db", key=COORDINATOR) as ledger:
        ledger.open_run("run")
        for txid in ("d", "e", "f"):
            release(ledger, txid)
        show(ledger, witness)
        sha256 = ledger.claims("run")[0].ledger_sha256
    return Case(folder / "ledger.db", folder / "memory.jsonl", folder / "backup.db", sha256)


@pytest.fixture
def case(original, tmp_path):
    """A copy to tamper with."""
    for file in (original.path, original.memory, original.backup):
        shutil.copy(file, tmp_path)
    return replace(
        original,
        path=tmp_path / original.path.name,
        memory=tmp_path / original.memory.name,
        backup=tmp_path / original.backup.name,
    )


@contextlib.contextmanager
def attacker(path):
    """The database without its guards."""
    db = sqlite3.connect(path)
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    yield db
    db.commit()
    db.close()


def rehash(db):
    """Number the events anew and make every hash and the head fit."""
    rows = db.execute("SELECT seq, ts, kind, txid, body FROM event ORDER BY seq").fetchall()
    db.execute("DELETE FROM event")
    prev = "0" * 64
    for seq, (_, *rest) in enumerate(rows, 1):
        digest = history.link(seq, *rest, prev)
        db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", (seq, *rest, prev, digest))
        prev = digest
    db.execute("UPDATE head SET seq = ?, hash = ?", (len(rows), prev))


def number(db, kind, txid):
    """Where an event stands."""
    return db.execute("SELECT seq FROM event WHERE kind = ? AND txid = ?", (kind, txid)).fetchone()[0]


def cheapen(db, txid):
    """Let a release have cost one unit, everywhere."""
    seq = number(db, "reserved", txid)
    db.execute("UPDATE event SET body = replace(body, ?, '1') WHERE seq = ?", (str(UNITS), seq))
    db.execute("UPDATE charge_line SET units = 1 WHERE txid = ? AND units = ?", (txid, UNITS))
    db.execute("UPDATE account SET spent_units = spent_units - ? WHERE name = 'live'", (UNITS - 1,))
    return seq


def forget(db, txid):
    """Take a release out of every table, and its balances back."""
    for table in ("event", "charge_line", "outbox", "charge"):
        db.execute(f"DELETE FROM {table} WHERE txid = ?", (txid,))  # noqa: S608 - names of our own tables
    db.execute("UPDATE account SET spent_units = spent_units - ? WHERE name = 'live'", (UNITS,))
    db.execute("UPDATE allowance SET spent = spent - 1")


def drop_evidence(db, after=0):
    """Take out checkpoints and countersignatures past an event."""
    db.execute("DELETE FROM event WHERE kind IN ('checkpoint', 'witnessed') AND seq > ?", (after,))
    db.execute("DELETE FROM witness WHERE seq > ?", (after,))
    db.execute("DELETE FROM checkpoint WHERE seq > ?", (after,))


GARBAGE = (None, [], {}, "", "x", -1, 2.5, 10**30, [[]], {"size": []})


@pytest.mark.parametrize("seed", range(40))
def test_whatever_stands_in_an_event_it_is_reported(case, seed):
    """Any value of any event replaced by garbage, all hashes made anew: no error but a report, and never a good one."""
    draw = random.Random(seed)
    with attacker(case.path) as db:
        rows = db.execute("SELECT seq, body FROM event WHERE kind NOT IN ('checkpoint', 'witnessed')").fetchall()
        seq, body = draw.choice(rows)
        content = json.loads(body)
        if content and seed % 8:
            content[draw.choice(sorted(content))] = draw.choice(GARBAGE)
        else:
            content = draw.choice(GARBAGE)
        db.execute("UPDATE event SET body = ? WHERE seq = ?", (history.canonical(content), seq))
        rehash(db)
    assert any("rewritten" in problem for problem in case.with_key().problems)


@pytest.mark.parametrize("column", ["ts", "txid", "body", "prev", "hash"])
def test_bytes_instead_of_a_text_are_reported(case, column):
    """SQLite holds anything anywhere; the reader is not surprised."""
    with attacker(case.path) as db:
        db.execute(f"UPDATE event SET {column} = x'ff00' WHERE seq = 7")  # noqa: S608 - as below
    assert any("event 7 was edited" in problem for problem in case.with_key().problems)


def test_an_honest_ledger_passes_with_everything_that_is_known(case):
    """Keys, silos, witnesses and hashes at once; the report says how far signatures reach."""
    report = case.verify(
        keys=[COORDINATOR.public], silos=[CLINIC.public], notes=witnesses.read(case.memory), expect=[case.sha256]
    )
    assert report.problems == ()
    assert report.ok
    assert report.signed == report.seen["clinic-a"] > 25
    assert report.counts["checkpoint"] == 7


def test_edit(case):
    """One text changed: the chain names the event, and says no more than that event."""
    with attacker(case.path) as db:
        seq = cheapen(db, "b")
    assert case.alone().problems == (f"history: event {seq} was edited",)


def test_edit_with_all_hashes_and_balances_made_anew(case):
    """The file agrees with itself; the owner's signature does not agree with it, and says between which events."""
    with attacker(case.path) as db:
        seq = cheapen(db, "b")
        rehash(db)
        (first,) = db.execute("SELECT seq FROM checkpoint ORDER BY seq LIMIT 1 OFFSET 1").fetchone()
    problems = case.alone().problems
    where = f"events {first + 1} to {first + 4} are not those that event {first + 5} (checkpoint) signed"
    assert problems[0] == f"history: {where}: rewritten"
    assert first < seq <= first + 4
    assert case.with_key().signed == first
    with attacker(case.path) as db:
        drop_evidence(db)
        rehash(db)
    assert case.alone().ok, "the attack is complete: nothing in the file shows it"
    assert case.with_key().problems == ("history: no checkpoint of its owner covers any of it",)
    assert "other events up to event" in case.with_witness().problems[0]


def test_deletion(case):
    """A release that never was: a gap, or with numbers and hashes made anew, a broken signature."""
    with attacker(case.path) as db:
        gone = [number(db, kind, "c") for kind in ("reserved", "committed", "published")]
        forget(db, "c")
    problems = case.alone().problems
    assert f"history: events {gone[0]} to {gone[-1]} are missing" in problems
    with attacker(case.path) as db:
        rehash(db)
    assert "rewritten" in case.with_key().problems[0]
    with attacker(case.path) as db:
        drop_evidence(db)
        rehash(db)
    assert case.alone().ok
    assert not case.with_key().ok
    assert not case.with_witness().ok


def test_reorder(case):
    """Two releases change places; with hashes made anew, the signature over them does not fit."""
    with attacker(case.path) as db:
        one, two = (number(db, "reserved", txid) for txid in ("d", "e"))
        for old, new in ((one, -1), (two, one), (-1, two)):
            db.execute("UPDATE event SET seq = ? WHERE seq = ?", (new, old))
    problems = case.alone().problems
    assert f"history: event {one} was edited" in problems
    assert f"history: event {two} was edited" in problems
    with attacker(case.path) as db:
        rehash(db)
    assert any(f"to {one + 2} are not those" in problem for problem in case.with_key().problems)


def test_truncation(case):
    """The last release is cut off: the head shows it; with the head put right, only who has seen it does."""
    with attacker(case.path) as db:
        seq = number(db, "published", "e")
        for table in ("charge_line", "outbox", "charge"):
            db.execute(f"DELETE FROM {table} WHERE txid = 'f'")  # noqa: S608 - as above
        db.execute("DELETE FROM event WHERE seq > ?", (seq + 1,))
        db.execute("DELETE FROM witness WHERE seq > ?", (seq,))
        db.execute("DELETE FROM checkpoint WHERE seq > ?", (seq,))
        db.execute("UPDATE account SET spent_units = spent_units - ? WHERE name = 'live'", (UNITS,))
        db.execute("UPDATE allowance SET spent = spent - 1")
    (problem,) = case.alone().problems
    assert problem.startswith(f"history: it ends at event {seq + 1}, ")
    assert problem.endswith("truncated")
    with attacker(case.path) as db:
        rehash(db)
    assert case.alone().ok
    assert case.with_key().ok, "every signature is genuine"
    (problem,) = case.with_witness().problems
    assert problem.startswith(f"history: it ends at event {seq + 1}, clinic-a has seen event ")
    assert problem.endswith("rolled back")
    assert "rolled back" in case.verify(expect=[case.sha256]).problems[0]


def test_roll_back_to_a_backup(case):
    """A genuine earlier file: a silo or a claim's hash finds it, and the coordinator does not go on."""
    shutil.copy(case.backup, case.path)
    assert case.with_key().ok
    assert "clinic-a has seen event" in case.with_witness().problems[0]
    assert case.verify(expect=[case.sha256]).problems[0].endswith("rolled back")
    refused = pytest.raises(VerificationError, match="rolled back; nothing was released")
    with Ledger(case.path, key=COORDINATOR) as ledger, refused:
        ledger.compare_with(witnesses.read(case.memory))


def test_fork(case):
    """Two coordinators on copied files, both with the key: the silo follows one and refuses the other."""
    shutil.copy(case.backup, case.path)
    witness = Witness(case.memory, CLINIC, [COORDINATOR.public])
    with Ledger(case.path, key=COORDINATOR) as ledger:
        ledger.open_run("run")
        for txid in ("g", "h", "i", "j"):
            release(ledger, txid)
        growth = ledger.growth(0)
        forked = ledger.growth(witness.size("coordinator"))
    assert case.with_key().ok, "every signature is genuine"
    assert Checkpoint.parse(Note.parse(growth.note).text).size > witness.size("coordinator")
    with pytest.raises(VerificationError, match="forked or rewritten"):
        witness.see(forked.note, forked.proof)
    (problem,) = case.with_witness().problems
    assert (
        problem
        == f"history: clinic-a has seen other events up to event {witness.size('coordinator')}: forked or rewritten"
    )
    with Ledger(case.path, key=COORDINATOR) as ledger, pytest.raises(VerificationError, match="forked or rewritten"):
        ledger.compare_with(witnesses.read(case.memory))


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("account", "spent_units = 0 WHERE name = 'live'"),
        ("account", "spent_units = 0 WHERE name = 'plan'"),
        ("account", "delta_spent_units = 0 WHERE name = 'plan'"),
        ("account", "limit_units = 2 * limit_units"),
        ("account", "overlap = 1"),
        ("allowance", "allowed = allowed + 1"),
        ("allowance", "spent = 0"),
        ("charge", "state = 'aborted' WHERE txid = 'a'"),
        ("charge_line", "units = 1 WHERE txid = 'a' AND units IS NOT NULL"),
        ("outbox", "sha256 = '" + "0" * 64 + "' WHERE txid = 'a'"),
        ("run", "fence = 9"),
        ("checkpoint", "root = '" + "0" * 64 + "'"),
        ("witness", "name = 'clinic-b'"),
    ],
)
def test_balance_edit(case, table, change):
    """Any number beside the history is compared with what the history tells."""
    with attacker(case.path) as db:
        db.execute(f"UPDATE {table} SET {change}")  # noqa: S608 - as above
    problems = case.alone().problems
    assert problems
    assert all(problem.startswith(f"{table}: ") for problem in problems)


def test_wiped_history(case):
    """Everything is gone and begun anew, by whoever has the key: only what others kept shows it."""
    case.path.unlink()
    with begin(case.path) as ledger:
        release(ledger, "a")
    assert case.with_key().ok
    assert case.with_witness().problems
    assert "rolled back" in case.verify(expect=[case.sha256]).problems[0]


def test_forged_checkpoint(case):
    """Somebody with another key of the same name rewrites and signs: the key says so, at every checkpoint."""
    other = SigningKey.generate("coordinator")
    with attacker(case.path) as db:
        cheapen(db, "b")
        rows = db.execute("SELECT seq, body FROM event WHERE kind = 'checkpoint' ORDER BY seq").fetchall()
        db.execute("DELETE FROM witness")
        db.execute("DELETE FROM event WHERE kind = 'witnessed'")
        rehash(db)
        places = [seq for (seq,) in db.execute("SELECT seq FROM event WHERE kind = 'checkpoint' ORDER BY seq")]
        db.execute("DELETE FROM checkpoint")
        for seq in places:
            forge(db, seq, other)
            rehash(db)
    assert len(rows) == len(places)
    assert case.alone().ok, "the forgery is complete"
    problems = case.with_key().problems
    assert len([problem for problem in problems if "is forged" in problem]) == len(places)
    assert f"history: event {places[0]} (checkpoint) is forged" in problems[0]
    assert problems[-1] == "history: no checkpoint of its owner covers any of it"


ZERO = {"root": "0" * 64}


def forge(db, seq, key):
    """Sign the first `seq` - 1 events with another key, under the owner's key number."""
    query = "SELECT hash FROM event WHERE seq < ? ORDER BY seq"
    root = merkle.root([bytes.fromhex(digest) for (digest,) in db.execute(query, (seq,))])
    text = Checkpoint(key.name, seq - 1, root).text
    signature = base64.b64encode(COORDINATOR.public.number() + key.sign_raw(text.encode())).decode()
    note = str(Note(text, ((key.name, signature),)))
    body = history.canonical({"size": seq - 1, "root": root.hex(), "note": note})
    db.execute("UPDATE event SET body = ? WHERE seq = ?", (body, seq))
    db.execute("INSERT INTO checkpoint VALUES (?, ?, ?)", (seq - 1, root.hex(), note))


def test_a_checkpoint_that_says_another_thing_than_its_note(case):
    """Only the note is signed, so the rest must repeat it."""
    with attacker(case.path) as db:
        seq, body = db.execute("SELECT seq, body FROM event WHERE kind = 'checkpoint' ORDER BY seq DESC").fetchone()
        db.execute("UPDATE event SET body = ? WHERE seq = ?", (history.canonical(json.loads(body) | ZERO), seq))
        db.execute("UPDATE checkpoint SET root = ? WHERE seq = ?", (ZERO["root"], seq - 1))
        rehash(db)
    (problem,) = case.alone().problems
    assert problem == f"history: event {seq} (checkpoint) is forged: it does not say what its note says"


def test_a_moved_checkpoint(case):
    """It stands right behind what it covers."""
    with attacker(case.path) as db:
        (seq,) = db.execute("SELECT max(seq) FROM event WHERE kind = 'checkpoint'").fetchone()
        for old, new in ((seq, -1), (seq + 1, seq), (-1, seq + 1)):
            db.execute("UPDATE event SET seq = ? WHERE seq = ?", (new, old))
        rehash(db)
    assert f"history: event {seq + 1} (checkpoint) covers {seq - 1} events: it was moved" in case.alone().problems


def test_forged_countersignature(case):
    """A silo's consent cannot be made up, nor moved from another checkpoint."""
    with attacker(case.path) as db:
        rows = db.execute("SELECT seq, body FROM event WHERE kind = 'witnessed' ORDER BY seq").fetchall()
        (early, first), (late, last) = rows
        moved = json.loads(last) | {"signature": json.loads(first)["signature"]}
        db.execute("UPDATE event SET body = ? WHERE seq = ?", (history.canonical(moved), late))
        db.execute("UPDATE witness SET signature = ? WHERE seq = ?", (moved["signature"], moved["size"]))
        rehash(db)
    assert case.alone().ok
    (problem,) = case.with_key().problems
    assert problem.startswith(f"history: event {late} (witnessed) is forged")
    assert case.with_key().seen == {"clinic-a": json.loads(first)["size"]}
    assert early < late


def test_a_long_tail_without_the_key(case):
    """Whoever opens the ledger without its key leaves events that no signature covers: a hundred are too many."""
    with Ledger(case.path) as ledger:
        for _ in range(99):
            ledger.open_run("other")
        assert case.with_key().ok
        ledger.open_run("other")
    (problem,) = case.with_key().problems
    assert problem.startswith("history: no checkpoint of its owner covers events ")


def test_a_rewritten_history_does_not_open_with_its_key(case):
    """Nothing is charged on a history that is not the one that was signed last, and nothing is signed over it."""
    with attacker(case.path) as db:
        cheapen(db, "b")
        rehash(db)
    with pytest.raises(VerificationError, match="was rewritten before event"):
        Ledger(case.path, key=COORDINATOR)


def test_a_history_rewritten_under_a_running_coordinator(case):
    """What another process signed is checked before the next signature."""
    with Ledger(case.path, key=COORDINATOR) as ledger:
        ledger.open_run("run")
        with Ledger(case.path, key=COORDINATOR) as other:
            other.checkpoint()
        with attacker(case.path) as db:
            (seq,) = db.execute("SELECT max(seq) - 1 FROM event").fetchone()
            db.execute("UPDATE event SET ts = 'x' WHERE seq = ?", (seq,))
            rehash(db)
        with pytest.raises(VerificationError, match="was rewritten before event"):
            release(ledger, "g")


def copied(source, target):
    """A database over another one that is in use."""
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


def test_a_file_put_back_under_a_running_coordinator(case):
    """A process that has signed more than the file holds signs nothing more."""
    with Ledger(case.path, key=COORDINATOR) as ledger:
        ledger.open_run("run")
        ledger.checkpoint()
        with (
            contextlib.closing(sqlite3.connect(case.backup)) as old,
            contextlib.closing(sqlite3.connect(case.path)) as db,
        ):
            db.backup(old)
            release(ledger, "g")
            old.backup(db)
        with pytest.raises(VerificationError, match="was put back"):
            ledger.checkpoint()


def test_an_export_shows_the_same_without_the_database(case, tmp_path):
    """An honest one passes; edits of history, checkpoints, witnesses and claims are found."""
    file = export(case.path, tmp_path / "export.json", keys=[COORDINATOR.public, CLINIC.public])
    known = {"keys": [COORDINATOR.public], "silos": [CLINIC.public], "witnesses": witnesses.read(case.memory)}
    report = verify_export(file, **known, expect=[case.sha256])
    assert report == case.verify(
        keys=[COORDINATOR.public], silos=[CLINIC.public], notes=witnesses.read(case.memory), expect=[case.sha256]
    )
    honest = json.loads(file.read_text())
    assert honest["keys"] == [str(COORDINATOR.public), str(CLINIC.public)]
    for say, lie in LIES.items():
        content = json.loads(file.read_text())
        lie(content)
        (tmp_path / "lie.json").write_text(json.dumps(content))
        problems = verify_export(tmp_path / "lie.json", **known).problems
        assert any(say in problem for problem in problems), (say, problems)


LIES = {
    "event 9 was edited": lambda content: content["history"][8].update(ts="2000"),
    "event 9 is missing": lambda content: content["history"].pop(8),
    "truncated": lambda content: content["history"].pop(),
    "checkpoint: the history tells of": lambda content: content["checkpoints"].pop(),
    "witness: the row": lambda content: content["witnesses"][0].update(name="x"),
    "epsilon is 0.1": lambda content: content["claims"][0].update(epsilon=0.1),
    "events is []": lambda content: content["claims"][1].update(events=[]),
    "another history": lambda content: content["claims"][0].update(ledger_sha256="0" * 64),
    "it is missing": lambda content: content["claims"].pop(),
    "no such charge": lambda content: content["claims"].append({**content["claims"][0], "run": "x"}),
    "cannot be read": lambda content: content.pop("claims"),
    "no ledger could hold": lambda content: content["history"][3].update(kind=[]),
    "is not of format": lambda content: content.update(format="x"),
}


def test_a_restored_backup_is_found_before_anything_is_written(case):
    """Comparing writes nothing, so a coordinator may ask at every start."""
    before = case.path.read_bytes()
    with Ledger(case.path, read_only=True) as ledger:
        assert ledger.compare_with(witnesses.read(case.memory), [COORDINATOR.public]) > 25
    assert case.path.read_bytes() == before
