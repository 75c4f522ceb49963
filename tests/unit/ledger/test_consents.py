"""Grants that come after the charge: with the bytes, from silos that another process asked, or much later."""

from __future__ import annotations

import dataclasses
import sqlite3

import pytest

from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import Account, Ledger, history, verify
from sordino.ledger.export import export, verify_export
from sordino.ledger.grants import Grant, Request, problems
from sordino.ledger.keys import SigningKey
from sordino.privacy import events
from sordino.privacy.permits import Line

EVENT = events.gaussian(8.0)
SILOS = ("north", "south")
KEYS = {name: SigningKey.generate(name) for name in SILOS}
PUBLIC = [key.public for key in KEYS.values()]
ROUNDS = 4


def line(name):
    return Line(name, Unit.RECORD, events.key(EVENT), 1)


def granted(name, txid="t0", fence=1, **change):
    asked = Request(txid, "run", int(txid[1:]), "d", fence, (line(name),))
    return Grant.of(dataclasses.replace(asked, **change), KEYS[name].public, expires=2**40).signed(KEYS[name]).text


def both(txid="t0", **change):
    return {name: granted(name, txid, **change) for name in SILOS}


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "ledger.db"
    with Ledger(place) as ledger:
        ledger.open_accounts([Account(name, Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-4) for name in SILOS])
        plan = {name: [(EVENT, ROUNDS)] for name in SILOS}
        ledger.admit("run", "d", plan, 1e-5, noise_at=NoiseAt.SILO)
    return place


@pytest.fixture
def ledger(place):
    with Ledger(place) as ledger:
        ledger.open_run("run")
        yield ledger


def reserve(ledger, txid="t0"):
    return ledger.reserve(txid, "run", int(txid[1:]), "train", [line(name) for name in SILOS])


def found_wrong(place, tmp_path):
    """Problems of the database and of its export, with the silos' keys known."""
    file = export(place, tmp_path / f"{len(list(tmp_path.iterdir()))}.json")
    return [*verify(place, silos=PUBLIC, reprice=True).problems, *verify_export(file).problems]


class TestCommit:
    """All silos were asked at once, after the coordinator reserved."""

    def test_grants_stand_beside_the_lines(self, ledger, place, tmp_path):
        reservation = reserve(ledger)
        assert ledger.consents("t0") == {}
        ledger.commit(reservation, b"x", both())
        ledger.commit(reservation, b"x", both())
        assert ledger.consents("t0") == both()
        assert found_wrong(place, tmp_path) == []

    def test_a_silo_that_did_not_answer_is_named_and_pays(self, ledger, place, tmp_path):
        ledger.commit(reserve(ledger), b"x", {"north": granted("north")}, ["south"])
        assert ledger.absent("t0") == ["south"]
        assert ledger.balance("south").committed == 1
        told = ledger.consents("t0")
        public = {key.name: key for key in PUBLIC}
        assert problems(told, "t0", [line(name) for name in SILOS], public, ["south"]) == []
        assert "without" in problems(told, "t0", [line(name) for name in SILOS], public)[0]
        assert found_wrong(place, tmp_path) == []

    @pytest.mark.parametrize(
        ("consents", "absent", "error", "match"),
        [
            ({"north": granted("north")}, [], PrivacyError, "south"),
            ({}, ["south"], PrivacyError, "north"),
            (both(), ["south"], PrivacyError, "absent, and consents"),
            ({**both(), "west": ""}, [], ConfigError, "west"),
            ({**both(), "south": "granted"}, [], VerificationError, "not a grant"),
            ({**both(), "south": granted("north")}, [], VerificationError, "another charge"),
            (both("t1"), [], VerificationError, "another charge"),
            (both(fence=2), [], VerificationError, "another charge"),
            (both(plan="e"), [], VerificationError, "another charge"),
            (both(run="other"), [], VerificationError, "another charge"),
            (both(round=1), [], VerificationError, "another charge"),
            (both(purpose="metric"), [], VerificationError, "another charge"),
        ],
    )
    def test_what_is_no_consent_settles_nothing(self, ledger, consents, absent, error, match):
        """A line without either, or a grant for something else."""
        reservation = reserve(ledger)
        with pytest.raises(error, match=match):
            ledger.commit(reservation, b"x", consents, absent)
        assert (ledger.state("t0"), ledger.consents("t0"), ledger.absent("t0")) == ("reserved", {}, [])
        ledger.commit(reservation, b"x", both())

    def test_a_line_keeps_its_grant(self, ledger):
        """It was granted before the charge, or with the bytes: another grant, valid as it may be, is refused."""
        lines = [line(name) for name in SILOS]
        reservation = ledger.reserve("t0", "run", 0, "train", lines, consents=both())
        other = Grant.of(Request("t0", "run", 0, "d", 1, (line("north"),)), KEYS["north"].public, expires=7)
        with pytest.raises(PrivacyError, match="already"):
            ledger.commit(reservation, b"x", {"north": other.signed(KEYS["north"]).text})
        ledger.commit(reservation, b"x")
        with pytest.raises(PrivacyError, match="already"):
            ledger.commit(reservation, b"x", {"north": other.signed(KEYS["north"]).text})
        assert ledger.consents("t0") == both()

    def test_the_database_keeps_it_too(self, ledger, place):
        ledger.commit(reserve(ledger), b"x", {"north": granted("north")}, ["south"])
        db = sqlite3.connect(place)
        for change in ("consent = NULL", "consent = 'x'", "absent = 0", "count = 2", "account_id = 9"):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(f"UPDATE charge_line SET {change}")  # noqa: S608 - columns of this test
        db.close()


class TestVerify:
    """What the rules above forbid is found in a ledger whose program did not keep to them."""

    def test_a_release_without_a_consent_is_found(self, ledger, place, tmp_path):
        """The coordinator left a silo out; the rest of the run shows that silos are asked."""
        ledger.commit(reserve(ledger), b"x", both())
        ledger.commit(reserve(ledger, "t1"), b"y")
        wrong = found_wrong(place, tmp_path)
        assert len([problem for problem in wrong if "paid without a silo's consent" in problem]) == 4

    def test_what_was_not_released_needs_none(self, ledger, place, tmp_path):
        ledger.commit(reserve(ledger), b"x", both())
        reserve(ledger, "t1")
        assert found_wrong(place, tmp_path) == []
        ledger.forfeit_open("run")
        assert found_wrong(place, tmp_path) == []

    def test_a_forged_late_consent_is_found(self, ledger, place):
        ledger.commit(reserve(ledger), b"x", {"north": granted("north")}, ["south"])
        forged = dataclasses.replace(Grant.parse(granted("south")), signature=KEYS["north"].sign(b"x"))
        ledger.consent("t0", "south", forged.text)
        assert "forged" in verify(place, silos=PUBLIC).problems[0]

    @pytest.mark.parametrize(
        ("kind", "body", "match"),
        [
            ("consented", {"txid": "t0", "account": "north", "consent": "another"}, "exchanges the consent"),
            ("consented", {"txid": "t0", "account": "west", "consent": "another"}, "not charged"),
            ("consented", {"txid": "t9", "account": "north", "consent": "another"}, "cannot be read"),
        ],
    )
    def test_a_history_that_tells_otherwise_is_found(self, ledger, place, kind, body, match):
        ledger.commit(reserve(ledger), b"x", both())
        with ledger._store.write() as db:
            history.append(db, kind, body)
        assert any(match in problem for problem in verify(place).problems)


class TestFound:
    """The process that reserved died; its silos had drawn, and still hold the bytes."""

    def restarted(self, place):
        with Ledger(place) as first:
            first.open_run("run")
            reserve(first)
        second = Ledger(place)
        second.open_run("run")
        return second

    def test_the_next_process_commits_what_silos_hold(self, place, tmp_path):
        with self.restarted(place) as ledger:
            ledger.found("t0", b"x", {"north": granted("north")}, ["south"])
            ledger.found("t0", b"x", {"north": granted("north")}, ["south"])
            assert ledger.forfeit_open("run") == []
            assert ledger.artefact("t0") == b"x"
            ledger.published("t0")
            assert ledger.balance("north").committed == 1
        assert found_wrong(place, tmp_path) == []

    def test_never_what_was_forfeited(self, place):
        with self.restarted(place) as ledger:
            ledger.forfeit_open("run")
            with pytest.raises(PrivacyError, match="forfeited already"):
                ledger.found("t0", b"x", both())

    def test_never_other_bytes(self, place):
        with self.restarted(place) as ledger:
            ledger.found("t0", b"x", both())
            with pytest.raises(PrivacyError, match="committed already"):
                ledger.found("t0", b"y", both())

    def test_never_without_a_consent(self, place):
        with self.restarted(place) as ledger, pytest.raises(PrivacyError, match="no silo's consent"):
            ledger.found("t0", b"x", {}, SILOS)

    def test_silos_that_had_not_been_asked_grant_it_to_the_new_owner(self, place, tmp_path):
        """A silo's own ledger knows a charge for ever: what it grants now it has not drawn before."""
        with self.restarted(place) as ledger:
            ledger.found("t0", b"x", both() | {"south": granted("south", fence=2)})
        assert found_wrong(place, tmp_path) == []

    def test_never_under_grants_for_anybody_else(self, place):
        with self.restarted(place) as ledger, pytest.raises(VerificationError, match="another charge"):
            ledger.found("t0", b"x", both(fence=3))

    def test_never_by_the_process_that_reserved(self, ledger):
        """It has a reservation, and commits under that."""
        reserve(ledger)
        with pytest.raises(PrivacyError, match="by this process"):
            ledger.found("t0", b"x", both())

    def test_never_by_an_older_owner(self, place):
        with self.restarted(place) as older, Ledger(place) as newer:
            newer.open_run("run")
            with pytest.raises(PrivacyError, match="taken over"):
                older.found("t0", b"x", both())
            with Ledger(place) as nobody, pytest.raises(PrivacyError, match="not open here"):
                nobody.found("t0", b"x", both())

    def test_never_what_nobody_reserved(self, place):
        with self.restarted(place) as ledger, pytest.raises(PrivacyError, match="never reserved"):
            ledger.found("t1", b"x", both("t1"))

    def test_a_history_in_which_the_owner_finds_its_own_is_wrong(self, ledger, place, monkeypatch):
        """The broken twin: without the check of the fence, `verify` says so."""
        reserve(ledger)
        monkeypatch.setattr(ledger, "_fences", _Any({"run": 1}))
        ledger.found("t0", b"x", both())
        assert any("its own process reserved" in problem for problem in verify(place).problems)


class _Fence(int):
    def __le__(self, other):
        return False


class _Any(dict):
    def __getitem__(self, name):
        return _Fence(super().__getitem__(name))


class TestLate:
    """A silo that was absent came back and charged the round as forfeited."""

    @pytest.fixture
    def waiting(self, ledger):
        ledger.commit(reserve(ledger), b"x", {"north": granted("north")}, ["south"])
        return ledger

    def test_its_grant_is_kept(self, waiting, place, tmp_path):
        assert waiting.consent("t0", "south", granted("south"))
        assert not waiting.consent("t0", "south", granted("south"))
        assert waiting.consents("t0") == both()
        assert [entry.kind for entry in waiting.history()].count("consented") == 1
        assert found_wrong(place, tmp_path) == []

    def test_so_is_one_for_a_round_that_was_lost(self, ledger, place, tmp_path):
        """Nobody had answered when the coordinator died; one silo had charged it."""
        reserve(ledger)
        ledger.forfeit_open("run")
        fence = ledger.open_run("run")
        assert ledger.consent("t0", "south", granted("south", fence=fence))
        assert found_wrong(place, tmp_path) == []

    @pytest.mark.parametrize(
        ("txid", "account", "text", "error", "match"),
        [
            ("t0", "north", granted("north", fence=2), PrivacyError, "already"),
            ("t0", "south", granted("north"), VerificationError, "another charge"),
            ("t0", "south", granted("south", "t1"), VerificationError, "another charge"),
            ("t0", "south", granted("south", fence=2), VerificationError, "another charge"),
            ("t0", "south", "granted", VerificationError, "not a grant"),
            ("t0", "west", granted("south"), ConfigError, "west"),
            ("t1", "south", granted("south", "t1"), PrivacyError, "never reserved"),
        ],
    )
    def test_anything_else_is_refused(self, waiting, txid, account, text, error, match):
        with pytest.raises(error, match=match):
            waiting.consent(txid, account, text)
        assert waiting.consents("t0") == {"north": granted("north")}

    def test_a_line_that_waits_for_none_gets_none(self, ledger):
        """Silos were not asked, or have not answered yet."""
        reservation = reserve(ledger)
        for _ in range(2):
            with pytest.raises(PrivacyError, match="waits for no consent"):
                ledger.consent("t0", "south", granted("south"))
            ledger.commit(reservation, b"x")


def test_a_ledger_of_layout_2_is_brought_to_the_present_one(tmp_path):
    """With texts that are not ASCII: only layout 1 hashed them with escapes."""
    from pathlib import Path

    place = tmp_path / "old.db"
    db = sqlite3.connect(place)
    db.executescript(Path(__file__).with_name("layout2.sql").read_text(encoding="utf-8"))
    db.close()
    with Ledger(place) as ledger:
        assert ledger.history()[-1].body["from"] == 2
        assert [charge.state for charge in ledger.charges("r1")] == ["committed", "committed", "forfeited"]
        assert (ledger.absent("ü1"), ledger.consents("ü1")) == ([], {"nörd": "granted"})
    assert verify(place, reprice=True).problems == ()
