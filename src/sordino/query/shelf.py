"""Answers that were paid for, as files: the ledger drops its copy once it is said to be published, and keeps a digest.

committed in the ledger ──► file, durably ──► published        asked again: the file, if it has the ledger's digest
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from sordino.core.errors import PrivacyError, VerificationError
from sordino.ledger import Ledger


def earlier(ledger: Ledger, txid: str, folder: Path) -> bytes | None:
    """The bytes of a charge that was made before; None if there was none.

    Raises:
        PrivacyError: It was charged and interrupted before its answer was safe: the charge is lost, nothing is drawn.
        VerificationError: The file is gone, or is not what was released.
    """
    state = ledger.state(txid)
    if state in (None, "aborted"):
        return None
    if state != "committed":
        remedy = "ask `again` with the next number, which is charged anew"
        raise PrivacyError.about("query", f"was interrupted; its charge is {state}", remedy, txid=txid)
    held = ledger.artefact(txid)
    return _checked(ledger, txid, folder) if held is None else held


def settled(ledger: Ledger, txid: str) -> bool:
    """Whether the answer was published: then reading it writes nothing, and disturbs no other session."""
    return ledger.state(txid) == "committed" and ledger.artefact(txid) is None


def keep(ledger: Ledger, txid: str, folder: Path, content: bytes) -> None:
    """Put a committed answer on the shelf, then let the ledger drop its copy."""
    if ledger.artefact(txid) is not None:
        _write(folder, _file(folder, txid), content)
        ledger.published(txid)


def _checked(ledger: Ledger, txid: str, folder: Path) -> bytes:
    file = _file(folder, txid)
    digest = next(e.body["sha256"] for e in ledger.history() if e.txid == txid and e.kind == "committed")
    try:
        content = file.read_bytes()
    except OSError:
        remedy = "restore it, or ask `again` with the next number, which is charged anew"
        raise VerificationError.about(
            "query", "was answered, and the answer's file is gone", remedy, file=str(file)
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise VerificationError.about("query", "is not what was released", "restore it from a copy", file=str(file))
    return content


def _file(folder: Path, txid: str) -> Path:
    return folder / f"{txid}.json"


def _write(folder: Path, file: Path, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with draft.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)  # the name must be as durable as the bytes before the ledger drops its own
    finally:
        os.close(place)
