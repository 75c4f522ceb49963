"""Grants: a silo says with its signature that its own ledger has charged a release, for one coordinator, for a while.

coordinator ── Request ──► silo: reserves in its ledger ── Grant ──► coordinator: reserves; its lines carry the grant

A coordinator's database that is copied or put back has no grants for what comes next, and cannot make any.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError, SordinoError, VerificationError
from sordino.core.types import Unit
from sordino.ledger import history
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.privacy.permits import Line

_TEXTS = ("txid", "run", "purpose", "plan", "silo", "key")
_NUMBERS = ("fence", "expires")


@dataclass(frozen=True)
class Request:
    """What a coordinator asks a silo to charge.

    Args:
        txid: The charge's identity, the same in both ledgers.
        run: Whose release.
        round: Its number.
        plan: Digest of the plan that it belongs to.
        fence: The coordinator's for this run.
        lines: What the silo's accounts pay.
        purpose: One of `schema.PURPOSES`.
    """

    txid: str
    run: str
    round: int | None
    plan: str
    fence: int
    lines: tuple[Line, ...]
    purpose: str = "train"

    def __post_init__(self) -> None:
        checks.count("request", fence=self.fence)
        if not (self.txid and self.run and self.plan and self.lines):
            raise ConfigError.about("request", "needs a txid, a run, a plan and lines", txid=self.txid, run=self.run)
        object.__setattr__(self, "lines", tuple(sorted(self.lines, key=lambda line: (line.account, line.key))))


@dataclass(frozen=True)
class Grant:
    """A silo's signed consent to one charge.

    Args:
        txid: The charge.
        run: Whose release.
        round: Its number.
        purpose: One of `schema.PURPOSES`.
        plan: Digest of the plan.
        fence: The coordinator that may use it: one with a higher or lower fence may not.
        lines: What the silo's own ledger has reserved.
        silo: Who grants it.
        key: Number of the silo's key.
        expires: Until when it may be used, in seconds since 1970.
        signature: By that key; empty until it is signed.

    >>> key = SigningKey.generate("north")
    >>> asked = Request("t1", "r", 0, "ab12", 1, (Line("north", Unit.RECORD, "{}", 1),))
    >>> grant = Grant.of(asked, key.public, expires=200).signed(key)
    >>> Grant.parse(grant.text).check(key.public, asked, now=100)
    """

    txid: str
    run: str
    round: int | None
    purpose: str
    plan: str
    fence: int
    lines: tuple[Line, ...]
    silo: str
    key: str
    expires: int
    signature: str = ""

    @classmethod
    def of(cls, request: Request, signer: VerifyKey | tuple[str, str], *, expires: int) -> Grant:
        """What a silo answers to a request, not yet signed. The signer is a key, or its name and number."""
        silo, number = (signer.name, signer.number().hex()) if isinstance(signer, VerifyKey) else signer
        return cls(
            txid=request.txid,
            run=request.run,
            round=request.round,
            purpose=request.purpose,
            plan=request.plan,
            fence=request.fence,
            lines=request.lines,
            silo=silo,
            key=number,
            expires=expires,
        )

    @property
    def message(self) -> bytes:
        """What the silo signs."""
        return b"sordino grant\n" + history.canonical(self._plain()).encode()

    @property
    def text(self) -> str:
        """The grant with its signature, as it stands beside the lines of a charge."""
        return history.canonical({**self._plain(), "signature": self.signature})

    def _plain(self) -> dict[str, Any]:
        lines = [[line.account, str(line.unit), line.key, line.count] for line in self.lines]
        rest = {name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS)}
        return {**rest, "round": self.round, "lines": lines}

    def signed(self, key: SigningKey) -> Grant:
        """With the silo's signature."""
        return replace(self, signature=key.sign(self.message))

    @classmethod
    def parse(cls, text: str) -> Grant:
        """The inverse of `text`.

        Raises:
            VerificationError: It is no grant.
        """
        try:
            value = json.loads(text)
            lines = tuple(Line(str(a), Unit(u), str(key), int(count)) for a, u, key, count in value["lines"])
            texts = {name: str(value[name]) for name in (*_TEXTS, "signature")}
            numbers = {name: int(value[name]) for name in _NUMBERS}
            number = None if value["round"] is None else int(value["round"])
            found = cls(round=number, lines=lines, **texts, **numbers)  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, SordinoError):
            found = None
        if found is None or found.text != text:
            raise VerificationError.about("grant", "is not a grant's text")
        return found

    def check_signature(self, key: VerifyKey) -> None:
        """Return only if this key's owner signed it.

        Raises:
            VerificationError: They did not.
        """
        if (self.silo, self.key) != (key.name, key.number().hex()):
            raise VerificationError.about("grant", f"is not by {key.name}", silo=self.silo)
        try:
            key.verify(self.message, self.signature)
        except VerificationError as error:
            raise VerificationError.about("grant", "is forged", "ask the silo again", silo=self.silo) from error

    def check(self, key: VerifyKey, request: Request, *, now: float) -> None:
        """Return only if it allows this request, now.

        Raises:
            VerificationError: It is forged, or by another silo.
            PrivacyError: It is for something else, or has expired.
        """
        self.check_signature(key)
        if not self.answers(request):
            raise PrivacyError.about("grant", "is for another charge, plan or coordinator", "ask again", txid=self.txid)
        if now > self.expires:
            raise PrivacyError.about("grant", "has expired: nothing may be drawn under it", "go on", txid=self.txid)

    def answers(self, request: Request) -> bool:
        """Whether this is what was asked for."""
        return Grant.of(request, (self.silo, self.key), expires=self.expires) == replace(self, signature="")


def by(text: str) -> str | None:
    """Whose grant a text says it is; None if it is no grant."""
    try:
        return Grant.parse(text).silo
    except VerificationError:
        return None


def problems(
    consents: Mapping[str, str],
    txid: str,
    lines: Sequence[Line],
    keys: Mapping[str, VerifyKey],
    absent: Collection[str] = (),
) -> list[str]:
    """What is wrong with the grants beside a charge's lines, for whoever reads a ledger later.

    Args:
        consents: The grants' texts by account, as in `Ledger.consents`.
        txid: The charge.
        lines: What it charged.
        keys: Public keys of the silos by name.
        absent: Accounts whose silos did not answer, as in `Ledger.absent`.
    """
    found = []
    for line in lines:
        text = consents.get(line.account)
        if text is None and line.account in absent:
            continue
        if text is None:
            found.append(f"charge {txid}: account {line.account!r} paid without a silo's consent")
            continue
        try:
            grant = Grant.parse(text)
            if grant.silo not in keys:
                raise VerificationError.about("grant", "is by a silo that is not known", silo=grant.silo)
            grant.check_signature(keys[grant.silo])
            if grant.txid != txid or line not in grant.lines:
                raise VerificationError.about("grant", "is for another charge", txid=grant.txid)
        except VerificationError as error:
            found.append(f"charge {txid}: account {line.account!r}: {error}")
    return found
