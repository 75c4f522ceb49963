"""Policies and orders as a history tells them: every signature is checked again, and every order counts once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sordino.core.errors import PrivacyError, SordinoError
from sordino.ledger import blocks, history, officers, scopes, tiers
from sordino.ledger.account import Account
from sordino.ledger.officers import Installed, Signed
from sordino.ledger.policy import Policy

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Move:
    """A change of an account's state: what is ordered, the event that tells of it, and from where to where."""

    action: Literal["freeze", "thaw", "retire"]
    kind: str
    before: tuple[str, ...]
    after: str


MOVES = (
    Move("freeze", "frozen", ("open",), "frozen"),
    Move("thaw", "thawed", ("frozen",), "open"),
    Move("retire", "retired", ("open", "frozen"), "retired"),
)
"""Retired is for ever."""


@dataclass
class Office:
    """What officers decided up to one event of a history.

    Args:
        installed: The policy in force.
        rows: What the table of policies must hold.
        used: Digests of the orders that were carried out.
        accounts: Those that were opened, with their first terms.
        held: Those of them that are blocks.
    """

    installed: Installed | None = None
    rows: list[Body] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    accounts: dict[str, Account] = field(default_factory=dict)
    held: dict[str, Account] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Of the policy in force; 0 without one."""
        return 0 if self.installed is None else self.installed.policy.version

    def install(self, row: Body, body: Body) -> Iterator[str]:
        """Take a `policy` event; yields what is wrong with it."""
        policy = Policy.parse(history.canonical(body["policy"]))
        try:
            signers = may_install(self.installed, policy, body["signatures"])
        except SordinoError as error:
            yield f"was not decided by its officers ({error})"
            signers = ()
        self.installed = Installed(policy, row["hash"])
        self.rows.append(stored(policy, signers, body["signatures"]))

    def open(self, account: Account) -> Iterator[str]:
        """Take a new account; yields why it should not stand beside the others."""
        try:
            scopes.check(account, self.accounts)
            blocks.check(account, self.accounts, self.held)
            if self.installed is not None:
                self.installed.policy.check_account(account)
            elif account.tier is not None:
                raise PrivacyError.about("open", "needs a policy", tier=account.tier)
        except SordinoError as error:
            yield f"should not have opened an account ({error})"
        self.accounts[account.name] = account
        self.held |= blocks.among({account.name: account})

    def admit(self, row: Body, body: Body) -> Iterator[str]:
        """Take the plan of an `admitted` event; yields which accounts it should not have been charged to."""
        policy = None if self.installed is None else self.installed.policy
        at, everything = datetime.fromisoformat(row["ts"]), [key for line in body["lines"] for key, _ in line[4]]
        for epsilon, _, _, _, counts, names in body["lines"]:
            keys = [key for key, _ in counts] or everything
            for account in map(self.accounts.__getitem__, names):
                try:
                    terms = {"epsilon": epsilon, "delta": body["delta"], "rounds": body.get("rounds")}
                    tiers.check_plan(policy, account, keys=keys, **terms)
                    tiers.check_age(policy, account, at)
                except SordinoError as error:
                    yield f"is against its policy ({error})"

    def release(self, row: Body, body: Body, lines: Iterable[Body]) -> Iterator[str]:
        """Take the lines of a `reserved` event; yields which accounts they should not have been charged to."""
        policy = None if self.installed is None else self.installed.policy
        for line in lines:
            account = self.accounts[line["account"]]
            try:
                if account.live:
                    tiers.check_release(policy, account, number=body["round"], keys=[line["key"]])
                tiers.check_age(policy, account, datetime.fromisoformat(row["ts"]))
            except SordinoError as error:
                yield f"is against its policy ({error})"

    def obey(self, row: Body, body: Body, action: str, account: str, terms: Mapping[str, Any]) -> Iterator[str]:
        """Take the order in an event's body; yields what is wrong with it."""
        signed = None if body.get("signed") is None else Signed.of(body["signed"])
        try:
            officers.check(self.installed, signed, action, account, terms)
        except SordinoError as error:
            yield f"was not ordered as its policy demands ({error})"
        if signed is not None:
            if signed.order.digest in self.used:
                yield "carries out an order a second time"
            if row["txid"] not in (None, signed.order.digest):
                yield "stands under the name of another order"
            self.used.add(signed.order.digest)


def may_install(installed: Installed | None, policy: Policy, signatures: Mapping[str, str]) -> tuple[str, ...]:
    """Return who signed, only if a policy may follow the one in force.

    Raises:
        PrivacyError: Its version is not the next one, or too few officers of the version before (of its own, for
            version 1) signed it.
        VerificationError: A signature is not its officer's.
    """
    rules = policy if installed is None else installed.policy
    following = 1 if installed is None else rules.version + 1
    if policy.version != following:
        raise PrivacyError.about("policy", f"is not the next one, {following}", version=policy.version)
    return rules.signed_by("policy", policy.message, signatures)


def stored(policy: Policy, signers: tuple[str, ...], signatures: Mapping[str, str]) -> Body:
    """A policy's row in its table: its officers who signed, and how, in the same order."""
    return {
        "version": policy.version,
        "body": policy.canonical,
        "sha256": policy.sha256,
        "signed_by": " ".join(signers),
        "signature": " ".join(signatures[name] for name in signers),
    }
