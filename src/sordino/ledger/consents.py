"""Grants beside the lines of a charge: from whom they came, who did not answer, and what came later.

reserve ──► all silos are asked at once ──► commit(consents, absent) ──► consent: a silo that was absent came back
               └── the process died ──► found(consents, absent): the next one commits what silos still hold
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from sordino.core import checks
from sordino.core.errors import PrivacyError, VerificationError
from sordino.core.types import Unit
from sordino.ledger import reading, schema
from sordino.ledger.evidence import Body
from sordino.ledger.grants import Grant
from sordino.ledger.reading import Charge
from sordino.privacy.permits import Line

account, kind, line = schema.account, schema.kind, schema.charge_line


def write(
    db: Connection,
    charge: Charge,
    consents: Mapping[str, str],
    absent: Collection[str],
    newest: int | None = None,
) -> dict[str, Any]:
    """Put grants beside the lines of a charge, in the caller's transaction.

    Args:
        db: The transaction.
        charge: Whose lines.
        consents: Signed grants of silos, by account.
        absent: Accounts whose silos did not answer; they are charged all the same.
        newest: The run's fence, where a later process of it asked silos again; left out, the charge's own.

    Returns:
        What the history says of it; nothing where no silo was asked.

    Raises:
        PrivacyError: A line has another grant already, or neither a grant nor a silo that is absent.
        VerificationError: A text is no grant of this charge.
    """
    if not consents and not absent:
        return {}
    rows = _named(db, charge.txid)
    for name in (*consents, *absent):
        checks.one_of("commit", sorted(rows), account=name)
    stand = {name: row[0].consent for name, row in rows.items() if row[0].consent is not None}
    for name, text in consents.items():
        if stand.get(name, text) != text or name in absent:
            rule = "is absent, and consents" if name in absent else "has the consent of its silo already"
            raise PrivacyError.about("commit", rule, "nothing was released", account=name)
        _check(db, text, charge, rows[name], (charge.fence, newest or charge.fence))
    missing = sorted(rows.keys() - stand.keys() - consents.keys() - set(absent))
    if missing:
        raise PrivacyError.about(
            "commit", "have neither a silo's consent nor an absent silo", "nothing was released", accounts=missing
        )
    _put(db, charge.txid, {rows[name][0].account_id: text for name, text in consents.items()})
    numbers = [rows[name][0].account_id for name in absent]
    db.execute(update(line).where(line.c.txid == charge.txid, line.c.account_id.in_(numbers)).values(absent=True))
    told = {"consents": dict(consents)} if consents else {}
    return told | ({"absent": sorted(absent)} if absent else {})


def late(db: Connection, charge: Charge, name: str, text: str, newest: int) -> bool:
    """Put a grant beside a line whose silo did not answer in time; whether it is news.

    Args:
        db: The transaction.
        charge: Whose line.
        name: Its account.
        text: The grant.
        newest: The run's fence: a silo that came back may have been asked by a later coordinator.

    Raises:
        PrivacyError: The line waits for no grant, or has another one.
        VerificationError: The text is no grant of this charge.
    """
    rows = _named(db, charge.txid)
    checks.one_of("consent", sorted(rows), account=name)
    first = rows[name][0]
    if first.consent == text:
        return False
    if first.consent is not None or not (first.absent or charge.state == "forfeited"):
        rule = "has the consent of its silo already" if first.consent is not None else "waits for no consent"
        raise PrivacyError.about("consent", rule, account=name, txid=charge.txid)
    _check(db, text, charge, rows[name], (charge.fence, newest))
    _put(db, charge.txid, {first.account_id: text})
    return True


def replayed(lines: Sequence[Body], consents: Mapping[str, str], absent: Collection[str]) -> Iterator[str]:
    """Play `write`, or `late`, on the lines of a charge as the history tells them; yields what is wrong."""
    names = {item["account"] for item in lines if not item["derived"]}
    if not names.issuperset((*consents, *absent)):
        yield "tells of the consent of accounts that were not charged"
    for item in lines:
        text = consents.get(item["account"])
        if item["derived"]:
            continue
        if text is not None and item["consent"] not in (None, text):
            yield f"exchanges the consent of {item['account']!r}"
        item["consent"] = item["consent"] if text is None else text
        item["absent"] = item["absent"] or item["account"] in absent


def absent(db: Connection, txid: str) -> list[str]:
    """The accounts of a charge whose silos did not answer, by name."""
    return sorted(name for name, rows in _named(db, txid).items() if rows[0].absent)


def _named(db: Connection, txid: str) -> dict[str, list[Any]]:
    """The lines of a charge by account, without those of accounts that contain them."""
    query = (
        select(account.c.name, account.c.unit, kind.c.key, line.c.account_id)
        .add_columns(line.c.count.label("times"), line.c.consent, line.c.absent)
        .join_from(line, account)
        .join(kind)
        .where(line.c.txid == txid, ~line.c.derived)
    )
    found: dict[str, list[Any]] = {}
    for row in db.execute(query):
        found.setdefault(row.name, []).append(row)
    return found


def _check(db: Connection, text: str, charge: Charge, rows: Sequence[Any], fences: tuple[int, int]) -> None:
    """Return only if a text is a grant of these lines, for a fence from the first to the last. Looks at no signature.

    Raises:
        VerificationError: It is not.
    """
    grant, plan = Grant.parse(text), reading.admitted(db, charge.run)
    lines = {Line(row.name, Unit(row.unit), row.key, row.times) for row in rows}
    asked = (charge.txid, charge.run, charge.round, charge.purpose, plan or grant.plan)
    mine = (grant.txid, grant.run, grant.round, grant.purpose, grant.plan) == asked
    if not mine or not fences[0] <= grant.fence <= fences[1] or not lines.issubset(grant.lines):
        raise VerificationError.about("grant", "is for another charge", "it is kept nowhere", txid=grant.txid)


def _put(db: Connection, txid: str, texts: Mapping[int, str]) -> None:
    mine = (line.c.txid == txid) & (line.c.account_id == bindparam("payer")) & ~line.c.derived
    if texts:
        db.execute(
            update(line).where(mine).values(consent=bindparam("text")),
            [{"payer": number, "text": text} for number, text in texts.items()],
        )
