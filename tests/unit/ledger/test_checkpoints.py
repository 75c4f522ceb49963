"""When checkpoints are written, what they say, and the texts of notes and links that other programs read."""

import base64
import json
import sqlite3

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, history, merkle, verify
from sordino.ledger.checkpoints import Checkpoint
from sordino.ledger.keys import SigningKey
from sordino.ledger.notes import Note
from sordino.privacy import events
from sordino.privacy.permits import Line

STEP = events.gaussian(4.0)
LINE = Line("live", Unit.RECORD, events.key(STEP), 1)
ACCOUNT = Account("live", Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-5, currency="gdp")
KEY = SigningKey.generate("coordinator")


@pytest.fixture
def path(tmp_path):
    """A ledger with an account, not signed yet."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open_account(ACCOUNT)
    return tmp_path / "ledger.db"


def sizes(path):
    """What the checkpoints cover."""
    with sqlite3.connect(path) as db:
        return [seq for (seq,) in db.execute("SELECT seq FROM checkpoint ORDER BY seq")]


def test_after_so_many_events_and_with_every_publication_and_claim(path):
    """A checkpoint covers everything before it, in the transaction that called for it."""
    with Ledger(path, key=KEY, checkpoint_every=10) as ledger:
        ledger.open_run("run")
        assert sizes(path) == [2], "the first is signed at once"
        for _ in range(8):
            ledger.open_run("run")
        assert sizes(path) == [2]
        ledger.open_run("run")
        assert sizes(path) == [2, 12]
        ledger.commit(ledger.reserve("a", "run", 0, "train", [LINE]), b"a")
        assert sizes(path) == [2, 12]
        ledger.published("a")
        assert sizes(path) == [2, 12, 16]
        ledger.claims("run")
        assert sizes(path) == [2, 12, 16], "nothing was new"
        ledger.reserve("b", "run", 0, "train", [LINE])
        ledger.claim("run", "live")
        assert sizes(path) == [2, 12, 16, 18]
        kinds = [entry.kind for entry in ledger.history()]
        assert [kinds[size] for size in sizes(path)] == ["checkpoint"] * 4
    assert verify(path, keys=[KEY.public]).problems == ()
    assert verify(path, keys=[KEY.public]).signed == 18


def test_what_it_says_is_the_root_over_the_events(path):
    """Whoever has the history and the public key can check a note with nothing else."""
    with Ledger(path, key=KEY) as ledger:
        note = Note.parse(ledger.checkpoint())
        said = Checkpoint.parse(note.text)
        hashes = [bytes.fromhex(entry.hash) for entry in ledger.history()][: said.size]
    note.check(KEY.public)
    assert (said.origin, said.size, said.root) == ("coordinator", 1, merkle.root(hashes))
    assert note.text == f"coordinator\n1\n{base64.b64encode(said.root).decode()}\n"
    with pytest.raises(VerificationError):
        note.check(SigningKey.generate("coordinator").public)


def test_a_second_process_signs_where_the_first_left_off(path):
    """Two processes with the key write one line of checkpoints."""
    with Ledger(path, key=KEY) as one, Ledger(path, key=KEY) as two:
        for ledger in (one, two, one):
            ledger.open_run("run")
            ledger.checkpoint()
    assert sizes(path) == [2, 4, 6]
    assert verify(path, keys=[KEY.public]).problems == ()


def test_inclusion_and_growth(path):
    """One event is proved without the others; a silo that has seen some gets the proof of the rest."""
    with Ledger(path, key=KEY, checkpoint_every=5) as ledger:
        for _ in range(20):
            ledger.open_run("run")
        ledger.inclusion(3).check(KEY.public)
        with pytest.raises(ConfigError):
            ledger.inclusion(99)
        size = Checkpoint.parse(Note.parse(ledger.checkpoint()).text).size
        assert ledger.growth(size).proof == ledger.growth(0).proof == ()
        assert ledger.growth(3).proof
        with pytest.raises(VerificationError, match="was put back"):
            ledger.growth(size + 1)
        moved = ledger.inclusion(4)
    with pytest.raises(VerificationError):
        type(moved)(moved.note, 5, moved.hash, moved.proof).check(KEY.public)
    with pytest.raises(VerificationError):
        moved.check(SigningKey.generate("other").public)


def test_one_owner(path):
    """Another owner's key does not go on with a signed ledger; without a key there is nothing to sign with."""
    with Ledger(path, key=KEY) as ledger:
        ledger.checkpoint()
    with pytest.raises(ConfigError, match="another owner"):
        Ledger(path, key=SigningKey.generate("somebody"))
    with pytest.raises(VerificationError, match="not signed by this key"):
        Ledger(path, key=SigningKey.generate("coordinator"))
    with Ledger(path.with_name("other.db")) as ledger, pytest.raises(ConfigError, match="no checkpoint"):
        ledger.checkpoint()
    with pytest.raises(ConfigError, match="at most 100"):
        Ledger(path, key=KEY, checkpoint_every=101)


def undone(ledger):
    """Five events and an error."""
    with ledger._store.write() as db:
        for _ in range(5):
            history.append(db, "run-opened", {"run": "x", "fence": 1})
        raise PrivacyError("not committed")


def test_a_transaction_that_is_undone_leaves_no_checkpoint(path):
    """The tree that is kept in memory is that of the file, also after an error."""
    with Ledger(path, key=KEY, checkpoint_every=2) as ledger:
        ledger.open_run("run")
        before = sizes(path)
        with pytest.raises(PrivacyError, match="not committed"):
            undone(ledger)
        assert sizes(path) == before
        ledger.open_run("run")
        ledger.checkpoint()
    assert verify(path, keys=[KEY.public]).problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n",
        "a\n1\n",
        "a\n01\nAA==\n",
        "a\n1\nAA==\n",
        "a\n-1\n" + "A" * 43 + "=\n",
        "a\n1\n" + "A" * 43 + "=\nmore\n",
    ],
)
def test_other_texts_are_no_checkpoints(text):
    """One meaning has one text."""
    with pytest.raises(VerificationError):
        Checkpoint.parse(text)


@pytest.mark.parametrize(
    "note", ["", "text\n", "text\n\n", "text\n\n- a AA==\n", "text\n\n\u2014 a AA==", "te\txt\n\n\u2014 a AA==\n"]
)
def test_other_texts_are_no_notes(note):
    """A tab, a missing end, a plain hyphen."""
    with pytest.raises(VerificationError):
        Note.parse(note)


@given(
    txid=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    body=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_links_are_over_rfc_8785(txid, body):
    """Another implementation of the RFC writes the same bytes, whatever the texts."""
    import hashlib

    event = {"seq": 7, "ts": "t", "kind": "k", "txid": txid, "body": body, "prev": "0" * 64}
    assert history.link(**event) == hashlib.sha256(rfc8785.dumps(event)).hexdigest()


@given(
    value=st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=5), max_size=5)
)
def test_bodies_come_back_as_they_were(value):
    """Floats to the last bit and integers beyond 2^53, which RFC 8785 has no form for."""
    assert json.loads(history.canonical({"value": value})) == {"value": value}


def test_layout_1_histories_keep_their_hashes(tmp_path):
    """Events from before a migration were hashed with escapes: they verify, and an edit of one is found."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open_account(ACCOUNT)
        ledger.open_run("r")
        ledger.commit(ledger.reserve("größe", "r", 0, "train", [LINE]), b"")
        with ledger._store.write() as db:
            history.append(db, "migrated", {"from": 1, "to": 2})
        ledger.commit(ledger.reserve("später", "r", 0, "train", [LINE]), b"")
    assert any("was edited" in problem for problem in verify(path).problems), "the first was not hashed the old way"
    with sqlite3.connect(path) as db:
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        prev, old = "0" * 64, True
        for row in db.execute("SELECT seq, ts, kind, txid, body FROM event ORDER BY seq").fetchall():
            old = old and row[2] != "migrated"
            digest = history.link(*row, prev, escaped=old)
            db.execute("UPDATE event SET prev = ?, hash = ? WHERE seq = ?", (prev, digest, row[0]))
            prev = digest
        db.execute("UPDATE head SET hash = ?", (prev,))
    assert verify(path).problems == ()
