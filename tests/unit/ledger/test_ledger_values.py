"""Amounts, accounts, claims and the file under the ledger."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Claim, Ledger, amounts
from sordino.ledger.stores.sqlite import SQLite

TERMS = {"name": "silo", "unit": Unit.RECORD, "adjacency": Adjacency.ADD_REMOVE, "epsilon": 8.0, "delta": 1e-5}


class TestAmounts:
    @given(value=st.floats(0, 1e5), times=st.integers(1, 10**6))
    def test_charges_round_up(self, value, times):
        """I8: never below the exact product of the written number, at most one unit above, never zero."""
        exact = Fraction(repr(value)) * times * 10**amounts.EPSILON
        units = amounts.charge("test", value, amounts.EPSILON, times)
        assert units >= 1
        assert min(exact, amounts.LARGEST) <= units <= max(exact + 1, 1)

    @given(parts=st.lists(st.floats(0, 100), min_size=1, max_size=20))
    def test_sums_of_charges_cover_the_sum(self, parts):
        """I8: rounding never makes many small charges cheaper than their sum."""
        total = sum(Fraction(repr(part)) for part in parts) * 10**amounts.EPSILON
        assert sum(amounts.charge("test", part, amounts.EPSILON) for part in parts) >= total

    @given(value=st.floats(1e-12, 1e6))
    def test_limits_round_down_and_meet_their_own_charge(self, value):
        """A limit is never above the written number."""
        assert amounts.limit("test", value, amounts.EPSILON) <= Fraction(repr(value)) * 10**amounts.EPSILON

    @pytest.mark.parametrize("delta", [1e-5, 1e-6, 3e-7, 0.1, 1e-9])
    def test_a_plan_at_the_accounts_delta_fits(self, delta):
        """A delta that is typed twice is the same number, although no float holds it exactly."""
        assert amounts.charge("test", delta, amounts.DELTA) == amounts.limit("test", delta, amounts.DELTA)

    @pytest.mark.parametrize("value", [-1.0, -5e-324, math.nan, math.inf, -math.inf])
    def test_senseless_charges_are_refused(self, value):
        """I8: a negative charge would raise the budget, a NaN would pass every comparison."""
        with pytest.raises(PrivacyError):
            amounts.charge("test", value, amounts.EPSILON)

    def test_the_smallest_charge_leaves_a_trace(self):
        """A positive subnormal does not vanish."""
        assert amounts.charge("test", 5e-324, amounts.EPSILON) == 1

    def test_a_huge_charge_is_over_every_limit_and_never_overflows(self):
        """Balance plus charge stay within 64 bits."""
        huge = amounts.charge("test", 1e300, amounts.EPSILON, 10**9)
        assert huge > amounts.LARGEST
        assert amounts.LARGEST + huge < 2**63

    @pytest.mark.parametrize("value", [0.0, -1.0, 1e-13, 1e8, math.nan, math.inf, True])
    def test_senseless_limits_are_refused(self, value):
        """A limit is a number that units can hold."""
        with pytest.raises(ConfigError):
            amounts.limit("test", value, amounts.EPSILON)


class TestAccount:
    @pytest.mark.parametrize(
        "change",
        [
            {"name": ""},
            {"unit": "patient"},
            {"adjacency": "near"},
            {"epsilon": 0.0},
            {"epsilon": math.nan},
            {"epsilon": -1.0},
            {"delta": 0.0},
            {"delta": 1.0},
            {"delta": 1e-19},
            {"currency": "gold"},
            {"order": 8.0},
            {"currency": "rdp"},
            {"currency": "rdp", "order": 1.0},
            {"currency": "rdp", "order": math.inf},
        ],
    )
    def test_senseless_terms_are_refused(self, change):
        """Before anything is written."""
        with pytest.raises(ConfigError):
            Account(**{**TERMS, **change})

    def test_terms_round_trip(self):
        """What stands in the history is the account again."""
        account = Account(**{**TERMS, "unit": "client", "epsilon": 8}, currency="rdp", order=8, test=True)
        assert Account.of(account.terms()) == account
        assert account.unit is Unit.CLIENT


class TestClaim:
    def test_a_claim_cannot_be_made_by_hand(self, tmp_path):
        """No epsilon without a charge: not by calling the class, nor by changing a copy."""
        with pytest.raises(TypeError):
            Claim()
        names = {field.name: None for field in dataclasses.fields(Claim)}
        with pytest.raises(PrivacyError, match="by hand"):
            Claim(mint=object(), **names)
        with Ledger(tmp_path / "ledger.db") as ledger:
            ledger.open_account(Account(**TERMS))
            from sordino.privacy import events

            ledger.admit("run", "digest", {"silo": [(events.gaussian(4.0), 1)]}, 1e-5, noise_at="silo")
            claim = ledger.claim("run", "silo")
        with pytest.raises((PrivacyError, ValueError)):
            dataclasses.replace(claim, epsilon=0.0)
        with pytest.raises(PrivacyError):
            dataclasses.replace(claim, epsilon=0.0, mint=None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            claim.epsilon = 0.0
        assert copy.copy(claim) == claim


class TestStore:
    def test_the_file_is_durable(self, tmp_path):
        """I11: WAL with full sync, and foreign keys; NORMAL would lose commits with the power."""
        store = SQLite(tmp_path / "ledger.db")
        with store.read() as db:
            asked = ("journal_mode", "synchronous", "foreign_keys")
            answers = [db.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in asked]
        assert answers == ["wal", 2, 1]
        store.close()

    def test_a_failed_block_writes_nothing(self, tmp_path):
        """Any error undoes the whole transaction."""
        store = SQLite(tmp_path / "ledger.db")

        def fail():
            with store.write() as db:
                db.exec_driver_sql("INSERT INTO run VALUES ('r', 1)")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        with store.read() as db:
            assert db.exec_driver_sql("SELECT count(*) FROM run").scalar() == 0
        store.close()

    @pytest.mark.parametrize("path", ["", ":memory:", "mysql://host/db", "sqlite:///x.db"])
    def test_only_a_local_file_is_a_ledger(self, path):
        """Memory is not durable, and no other database is supported under this class."""
        with pytest.raises(ConfigError, match="local disk"):
            SQLite(path)

    def test_a_missing_folder_is_one_line(self, tmp_path):
        """I15: a file that cannot be made refuses without a traceback of the database."""
        with pytest.raises(PrivacyError, match=r"unable to open.*nothing was released"):
            SQLite(tmp_path / "none" / "ledger.db")

    def test_a_ledger_of_another_layout_is_not_touched(self, tmp_path):
        """An unknown version is refused, not migrated by guess."""
        store = SQLite(tmp_path / "ledger.db")
        with store.write() as db:
            db.exec_driver_sql("DROP TRIGGER head_forward")
            db.exec_driver_sql("UPDATE head SET version = 99")
        store.close()
        with pytest.raises(PrivacyError, match="another layout"):
            SQLite(tmp_path / "ledger.db")

    def test_a_forked_child_does_not_inherit_the_ledger(self, tmp_path, monkeypatch):
        """It would hold its parent's fence and file handle."""
        store = SQLite(tmp_path / "ledger.db")
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -2)
            with pytest.raises(PrivacyError, match="fork"):
                store.write().__enter__()
        store.close()

    def test_a_read_only_medium_can_be_read(self, tmp_path, monkeypatch):
        """Years later a ledger may lie where no lock file can be made."""
        SQLite(tmp_path / "ledger.db").close()
        monkeypatch.setattr(os, "access", lambda *_: False)
        store = SQLite(tmp_path / "ledger.db", read_only=True)
        with store.read() as db:
            assert db.exec_driver_sql("SELECT seq FROM head").scalar() == 0
        store.close()
        assert sorted(item.name for item in tmp_path.iterdir()) == ["ledger.db"]


def test_importing_the_ledger_imports_no_accountant():
    """`sordino --help` and readers of a ledger do not wait for dp_accounting, scipy or torch."""
    code = (
        "import sys, sordino.ledger; "
        "print(*{'dp_accounting', 'scipy', 'torch'} & {name.split('.')[0] for name in sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
