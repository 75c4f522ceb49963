"""A policy: which officers may do what to accounts, in how many silos a person may be, and what each tier may spend.

It is public. Version 1 is signed by its own officers, every later one by those of the version before, and each stays
in the history. Without a policy whoever holds the file may open accounts, and no limit is ever raised.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from sordino.core import checks, tables
from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.ledger import history
from sordino.ledger.account import Account
from sordino.ledger.keys import VerifyKey

Action: TypeAlias = Literal["open", "raise", "freeze", "thaw", "retire", "approve", "policy"]
"""What needs officers: changes of accounts, approving a plan, and the next policy."""


@dataclass(frozen=True)
class Quorum:
    """So many of these officers.

    Args:
        officers: Their names.
        need: How many of them must sign.
    """

    officers: tuple[str, ...]
    need: int = 1

    def __post_init__(self) -> None:
        checks.count("policy.may", need=self.need)
        if len(set(self.officers)) != len(self.officers) or self.need > len(self.officers):
            raise ConfigError.about(
                "policy.may", "names an officer twice, or fewer than it needs", officers=self.officers, need=self.need
            )


@dataclass(frozen=True)
class Tier:
    """What a silo of this tier may spend on one plan.

    Args:
        epsilon: At most, per plan.
        delta: At most, per plan.
        rounds: At most, per plan.
        may_search: Whether it may take part in a search for settings.
    """

    epsilon: float
    delta: float
    rounds: int
    may_search: bool = False

    def __post_init__(self) -> None:
        checks.positive("policy.tiers", epsilon=self.epsilon)
        checks.fraction("policy.tiers", delta=self.delta)
        checks.count("policy.tiers", rounds=self.rounds)

    def check(self, where: str, *, epsilon: float, delta: float, rounds: int, search: bool = False) -> None:
        """Return only if a plan stays within the tier.

        Raises:
            PrivacyError: It does not; says in what.
        """
        for name, asked in (("epsilon", epsilon), ("delta", delta), ("rounds", rounds)):
            most = getattr(self, name)
            if not asked <= most:
                raise PrivacyError.about(where, f"is more than the tier's {most:g}", **{name: asked})
        if search and not self.may_search:
            raise PrivacyError.about(where, "may not take part in a search", "use settings found on public data")


@dataclass(frozen=True)
class Policy:
    """The rules of a ledger's accounts.

    Args:
        name: Whose policy.
        version: 1 for the first one of a ledger, then one more each time.
        officers: Public keys by name.
        may: Who may do what. What is left out, nobody may; the next `policy` needs every officer if it is left out.
        silos_per_person: In at most how many silos a person is; none where that is not known, and then all add up.
        tiers: What each tier may spend, by name.
        retention_days: So many days after its end a block's records are read no more; none: never by age.

    Guarantee:
        Two policies are equal if and only if their digests are: spacing, comments and order of the file do not count.
    """

    name: str
    version: int
    officers: dict[str, str]
    may: dict[str, Quorum] = field(default_factory=dict)
    silos_per_person: int | None = None
    tiers: dict[str, Tier] = field(default_factory=dict)
    retention_days: int | None = None

    def __post_init__(self) -> None:
        checks.count("policy", version=self.version)
        for name in ("silos_per_person", "retention_days"):
            if getattr(self, name) is not None:
                checks.count("policy", **{name: getattr(self, name)})
        if not self.officers:
            raise ConfigError.about("policy", "has no officers", "name at least one with its public key")
        keys = {name: VerifyKey.parse(text) for name, text in self.officers.items()}
        for name, key in keys.items():
            if key.name != name:
                raise ConfigError.about("policy.officers", "is the name in another's key", key.name, officer=name)
        if len({key.raw for key in keys.values()}) != len(keys):
            raise ConfigError.about("policy.officers", "two names share one key", "one person is one officer")
        for action, quorum in self.may.items():
            checks.one_of("policy.may", get_args(Action), action=action)
            for officer in quorum.officers:
                checks.one_of(f"policy.may.{action}", self.officers, officer=officer)

    @classmethod
    def parse(cls, text: str) -> Policy:
        """A policy from its TOML text, or from its canonical JSON.

        Raises:
            ConfigError: It is not well formed, or contradicts itself.
        """
        try:
            table = json.loads(text) if text.startswith("{") else tomllib.loads(text)
        except ValueError as error:
            raise ConfigError.about("policy", f"is not TOML: {error}") from None
        return tables.build(cls, table, "policy")

    @property
    def canonical(self) -> str:
        """One text for every policy that says the same."""
        return history.canonical(tables.plain(self))

    @property
    def sha256(self) -> str:
        """The digest of `canonical`."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @property
    def message(self) -> bytes:
        """What officers sign to install it."""
        return b"sordino policy\n" + self.canonical.encode()

    @property
    def approves(self) -> bool:
        """Whether a plan needs an approval: where it is said who may give one."""
        return "approve" in self.may

    def quorum(self, action: str) -> Quorum:
        """Who may do this.

        Raises:
            PrivacyError: Nobody may.
        """
        checks.one_of("policy", get_args(Action), action=action)
        if action in self.may:
            return self.may[action]
        if action == "policy":
            return Quorum(tuple(sorted(self.officers)), len(self.officers))
        raise PrivacyError.about("policy", "may be done by nobody", "install a policy that allows it", action=action)

    def tier(self, name: str) -> Tier:
        """A tier by its name."""
        return self.tiers[checks.one_of("policy.tiers", self.tiers, tier=name)]

    def signed_by(self, action: str, message: bytes, signatures: Mapping[str, str]) -> tuple[str, ...]:
        """Those officers who may do this and signed it, if they are enough.

        Raises:
            PrivacyError: They are too few.
            VerificationError: A signature is not its officer's.
        """
        quorum = self.quorum(action)
        signers = tuple(name for name in sorted(signatures) if name in quorum.officers)
        for name in signers:
            try:
                VerifyKey.parse(self.officers[name]).verify(message, signatures[name])
            except VerificationError as error:
                raise VerificationError.about("policy", f"{action} is not signed as given", officer=name) from error
        if len(signers) < quorum.need:
            raise PrivacyError.about(
                "policy",
                f"needs {quorum.need} of {', '.join(quorum.officers)} and has {len(signers)}",
                "let them sign the order",
                action=action,
            )
        return signers

    def check_account(self, account: Account) -> None:
        """Refuse an account of an unknown tier, or one that counts on fewer silos per person than are declared.

        Raises:
            ConfigError: There is no such tier.
            PrivacyError: It counts on fewer; its people would pay too little.
        """
        if account.tier is not None:
            self.tier(account.tier)
        if account.scope not in ("federation", "domain") or account.overlap is None:
            return
        if self.silos_per_person is None or account.overlap < self.silos_per_person:
            raise PrivacyError.about(
                f"account {account.name!r}",
                f"is less than the policy's silos_per_person={self.silos_per_person or 'unknown'}",
                "leave it out, and all silos add up",
                overlap=account.overlap,
            )

    def completed(self, account: Account) -> Account:
        """An account of several silos with the declared overlap where it has none of its own."""
        if account.scope not in ("federation", "domain") or account.overlap is not None:
            return account
        return dataclasses.replace(account, overlap=self.silos_per_person)

    def plain(self) -> dict[str, Any]:
        """The policy as JSON-able values."""
        value: dict[str, Any] = tables.plain(self)
        return value
