"""A silo's memory of checkpoints: what it countersigns, what it refuses, and what its file survives."""

import json
from datetime import UTC, datetime

import pytest

from sordino.core.errors import ConfigError, VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, verify, witnesses
from sordino.ledger.checkpoints import Checkpoint
from sordino.ledger.export import export, verify_export
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.notes import Note
from sordino.ledger.witnesses import Witness

KEY, CLINIC, OTHER = (SigningKey.generate(name) for name in ("coordinator", "clinic-a", "clinic-b"))
ACCOUNT = Account("a", Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-5)


@pytest.fixture
def ledger(tmp_path):
    """A signed ledger with one event."""
    with Ledger(tmp_path / "ledger.db", key=KEY) as ledger:
        ledger.open_account(ACCOUNT)
        yield ledger


@pytest.fixture
def witness(tmp_path):
    """A silo that has seen nothing."""
    return Witness(tmp_path / "silo" / "memory.jsonl", CLINIC, [KEY.public])


def tell(ledger, witness):
    """The newest checkpoint, and its countersignature."""
    growth = ledger.growth(witness.size("coordinator"))
    return growth.note, witness.see(growth.note, growth.proof)


def test_the_published_example_of_a_countersignature():
    """The layout is that of C2SP tlog-cosignature: its example parses, and its time is where it says."""
    text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    line = "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA=="
    note = Note.parse(f"{text}\n\u2014 witness.example.com/w1 {line}\n")
    assert Checkpoint.parse(note.text).size == 20852163
    mine = Note(text).cosigned(CLINIC, datetime.fromtimestamp(1679315147, UTC)).signatures[0][1]
    assert mine[6:16] == line[6:16], "the bytes of the time"
    assert len(mine) == len(line)


def test_a_history_that_grows_is_countersigned(ledger, witness):
    """Each countersignature is kept by the ledger, once, and holds under the silo's key."""
    for _ in range(3):
        note, signature = tell(ledger, witness)
        assert ledger.witnessed(note, signature, CLINIC.public)
        assert not ledger.witnessed(note, signature, CLINIC.public)
        when = Note.parse(note).with_cosignature("clinic-a", signature).check_cosignature(CLINIC.public)
        assert abs((datetime.now(UTC) - when).total_seconds()) < 600
        ledger.open_run("run")
    assert [entry.kind for entry in ledger.history()].count("witnessed") == 3
    notes = witnesses.read(witness.path)
    assert len(notes) == 3
    assert ledger.compare_with(notes) == Checkpoint.parse(Note.parse(note).text).size


def test_the_same_checkpoint_again_is_answered_the_same(ledger, witness):
    """A retry after a lost answer changes nothing."""
    note, signature = tell(ledger, witness)
    assert witness.see(note) == signature
    assert len(witnesses.read(witness.path)) == 1


def test_an_older_checkpoint_is_a_roll_back(ledger, witness):
    """Even a genuine one."""
    old, _ = tell(ledger, witness)
    ledger.open_run("run")
    tell(ledger, witness)
    with pytest.raises(VerificationError, match="rolled back"):
        witness.see(old)


def test_another_history_is_a_fork(ledger, witness, tmp_path):
    """Of the same length, and of a greater one whatever its proof."""
    ledger.open_run("run")
    tell(ledger, witness)
    with Ledger(tmp_path / "twin.db", key=KEY) as twin:
        twin.open_account(ACCOUNT)
        twin.open_run("other")
        with pytest.raises(VerificationError, match="forked or rewritten"):
            witness.see(twin.checkpoint())
        twin.open_run("other")
        growth = twin.growth(witness.size("coordinator"))
        for proof in (growth.proof, (), ("AAAA",), ("?",)):
            with pytest.raises(VerificationError, match="forked or rewritten"):
                witness.see(growth.note, proof)
    assert len(witnesses.read(witness.path)) == 1


def test_only_known_ledgers_are_followed(witness, tmp_path):
    """Neither another name nor another key under the same name."""
    for key in (OTHER, SigningKey.generate("coordinator")):
        with Ledger(tmp_path / f"{id(key)}.db", key=key) as ledger:
            ledger.open_account(ACCOUNT)
            with pytest.raises(VerificationError):
                witness.see(ledger.checkpoint())
    assert not witness.path.exists()


def test_two_ledgers_in_one_memory(ledger, tmp_path):
    """Each has a line of its own; a note of another ledger is no evidence about this one."""
    witness = Witness(tmp_path / "m.jsonl", CLINIC, [KEY.public, OTHER.public])
    tell(ledger, witness)
    with Ledger(tmp_path / "other.db", key=OTHER) as other:
        other.open_account(ACCOUNT)
        for _ in range(5):
            other.open_run("run")
        witness.see(other.checkpoint())
        assert other.compare_with(witnesses.read(witness.path)) == 7
    assert ledger.compare_with(witnesses.read(witness.path)) == 1
    assert (witness.size("coordinator"), witness.size("clinic-b"), witness.size("x")) == (1, 7, 0)


def test_a_line_cut_by_a_crash_was_never_given_out(ledger, witness):
    """Its countersignature had not left, so it is written again; any other damage is said."""
    tell(ledger, witness)
    ledger.open_run("run")
    whole = witness.path.read_bytes()
    witness.path.write_bytes(whole + whole[:30])
    assert witness.size("coordinator") == 1
    tell(ledger, witness)
    assert len(witnesses.read(witness.path)) == 2
    witness.path.write_bytes(whole[:30] + b"\n" + whole)
    with pytest.raises(VerificationError, match="damaged"):
        witness.seen("coordinator")


def test_a_countersignature_of_somebody_else_is_not_kept(ledger, witness):
    """Nor one of another checkpoint."""
    note, signature = tell(ledger, witness)
    with pytest.raises(VerificationError):
        ledger.witnessed(note, signature, OTHER.public)
    with pytest.raises(VerificationError):
        ledger.witnessed(note, signature, VerifyKey("clinic-a", OTHER.public.raw))
    ledger.open_run("run")
    later, _ = tell(ledger, witness)
    with pytest.raises(VerificationError):
        ledger.witnessed(later, signature, CLINIC.public)
    with pytest.raises(VerificationError, match="not a checkpoint of this ledger"):
        ledger.witnessed(str(Note("coordinator\n9\n" + "A" * 43 + "=\n").signed(KEY)), signature, CLINIC.public)


def test_a_made_up_note_is_no_evidence(ledger, tmp_path):
    """Nobody but the owner can stop a coordinator by claiming to have seen more; the claim is refused aloud."""
    ledger.checkpoint()
    forged = str(Note("coordinator\n99\n" + "A" * 43 + "=\n").signed(SigningKey.generate("coordinator")))
    with pytest.raises(VerificationError, match="by this key"):
        ledger.compare_with([forged])
    with pytest.raises(VerificationError, match="not a signed note"):
        ledger.compare_with(["hello"])
    assert "a silo's note" in verify(tmp_path / "ledger.db", keys=[KEY.public], witnesses=[forged]).problems[0]
    assert ledger.compare_with([]) == 0
    with (
        Ledger(tmp_path / "ledger.db", read_only=True) as reader,
        pytest.raises(ConfigError, match="needs the ledger's key"),
    ):
        reader.compare_with([forged])


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_both_databases_give_the_same_evidence(request, witness, tmp_path, database):
    """Checkpoints, countersignatures, proofs, verification and export."""
    place = tmp_path / "l.db" if database == "sqlite" else request.getfixturevalue("postgresql")
    with Ledger(place, key=KEY) as ledger:
        ledger.open_account(ACCOUNT)
        for _ in range(3):
            note, signature = tell(ledger, witness)
            ledger.witnessed(note, signature, CLINIC.public)
            ledger.open_run("run")
        ledger.inclusion(4).check(KEY.public)
    with Ledger(place, key=KEY) as ledger:
        assert ledger.compare_with(witnesses.read(witness.path)) > 1
    known = {"keys": [KEY.public], "silos": [CLINIC.public], "witnesses": witnesses.read(witness.path)}
    report = verify(place, **known)
    assert report.problems == ()
    assert report.seen == {"clinic-a": witness.size("coordinator")}
    assert verify_export(export(place, tmp_path / "export.json"), **known) == report


def test_the_file_is_lines_of_json(ledger, witness):
    """A silo's administrator can read it."""
    note, signature = tell(ledger, witness)
    (line,) = witness.path.read_text().splitlines()
    assert json.loads(line)["note"] == note + f"\u2014 clinic-a {signature}\n"
