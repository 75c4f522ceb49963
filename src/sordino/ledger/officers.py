"""Orders: what officers sign to open an account, raise, freeze, thaw or retire it, or to approve a plan.

An order holds for one ledger, under one version of its policy, once. It names the event that installed the policy: no
other ledger has an event with that hash, and the next version has another one.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.ledger import history
from sordino.ledger.keys import SigningKey
from sordino.ledger.policy import Action, Policy


@dataclass(frozen=True)
class Installed:
    """A policy as it stands in a ledger.

    Args:
        policy: The rules.
        event: Hash of the event that installed it.
    """

    policy: Policy
    event: str


@dataclass(frozen=True)
class Order:
    """One command of officers.

    Args:
        action: What to do.
        account: With which account; for `approve`, the run.
        terms: What else is decided: all terms of a new account, new limits, a reason, the digest of a plan.
        policy: The version under which it is given.
        event: Hash of the event that installed this version in the ledger it is meant for.
        nonce: Tells two equal orders apart.
    """

    action: str
    account: str
    terms: Mapping[str, Any]
    policy: int
    event: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        checks.one_of("order", get_args(Action), action=self.action)
        if not (self.account and self.nonce):
            raise ConfigError.about("order", "needs an account and a nonce", account=self.account, nonce=self.nonce)

    @property
    def canonical(self) -> str:
        """One text for every order that says the same."""
        return history.canonical({**self.__dict__, "terms": dict(self.terms)})

    @property
    def message(self) -> bytes:
        """What officers sign."""
        return b"sordino order\n" + self.canonical.encode()

    @property
    def digest(self) -> str:
        """Its identity, by which a ledger knows that it was carried out."""
        return hashlib.sha256(self.message).hexdigest()


@dataclass(frozen=True)
class Signed:
    """An order and the signatures under it, by officer."""

    order: Order
    signatures: Mapping[str, str] = field(default_factory=dict)

    def sign(self, key: SigningKey) -> Signed:
        """The same order with one more signature."""
        return Signed(self.order, {**self.signatures, key.name: key.sign(self.order.message)})

    def plain(self) -> dict[str, Any]:
        """As JSON-able values."""
        terms = {**self.order.__dict__, "terms": dict(self.order.terms)}
        return {**terms, "signatures": dict(sorted(self.signatures.items()))}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Signed:
        """The inverse of `plain`.

        Raises:
            ConfigError: It is not the value of an order.
        """
        try:
            terms = {name: value[name] for name in ("action", "account", "terms", "policy", "event", "nonce")}
            signatures = {str(name): str(text) for name, text in value.get("signatures", {}).items()}
            return cls(Order(**{**terms, "terms": dict(terms["terms"])}), signatures)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigError.about("order", "is not an order", "write one with `sordino ledger order`") from None

    @classmethod
    def parse(cls, text: str) -> Signed:
        """An order from its JSON text."""
        try:
            value = json.loads(text)
        except ValueError:
            value = {}
        return cls.of(value)


def check(
    installed: Installed | None, signed: Signed | None, action: str, account: str, terms: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return only if this may be done: who signed for it, nobody where there is no policy.

    Whether the order was carried out before is for the ledger to know.

    Raises:
        PrivacyError: There is a policy and no order; or the order says something else, is for another ledger or
            version, or is signed by too few.
        VerificationError: A signature is not its officer's.
    """
    if installed is None:
        if signed is not None:
            raise PrivacyError.about("order", "is for a ledger with a policy; this one has none")
        return ()
    if signed is None:
        raise PrivacyError.about(
            f"account {account!r}" if action != "approve" else f"run {account!r}",
            f"needs an order to {action}, signed under policy {installed.policy.version}",
            "sordino ledger order",
        )
    order = signed.order
    if (order.policy, order.event) != (installed.policy.version, installed.event):
        raise PrivacyError.about("order", "is for another ledger or policy", "write a new one", policy=order.policy)
    asked = (action, account, history.canonical(dict(terms)))
    if (order.action, order.account, history.canonical(dict(order.terms))) != asked:
        raise PrivacyError.about("order", f"does not order to {action} {account!r} so", "write a new one")
    return installed.policy.signed_by(action, order.message, signed.signatures)
