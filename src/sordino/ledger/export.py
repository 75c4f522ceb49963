"""One JSON file that shows a ledger to somebody without its database: history, checkpoints, witnesses, keys, claims.

The public keys in the file make it easy to read, not to trust: whoever made the file chose them. Give `verify_export`
keys that come from elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from sordino.core.errors import ConfigError, VerificationError
from sordino.ledger import claim, evidence, history, schema
from sordino.ledger.evidence import Body, Known
from sordino.ledger.keys import VerifyKey
from sordino.ledger.replay import Replay
from sordino.ledger.repricing import underpriced
from sordino.ledger.stores import Place, open_store
from sordino.ledger.verify import Report, compare, ends, report, unasked

FORMAT = "sordino-ledger-export/1"


def export(path: Place, out: str | Path, *, keys: Sequence[VerifyKey] = ()) -> Path:
    """Write what a ledger can show.

    Args:
        path: The ledger.
        out: The file to write; never one that exists.
        keys: Public keys of its owner and its witnesses, for the reader's convenience.

    Raises:
        PrivacyError: The ledger cannot be read.
        ConfigError: The file exists, or cannot be written.
    """
    out, store = Path(out), open_store(path, read_only=True)
    try:
        with store.read() as db:
            content = _content(db, keys)
    finally:
        store.close()
    try:
        with out.open("x", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError.about("export", f"cannot be written ({error.strerror})", file=str(out)) from error
    return out


def _content(db: Connection, keys: Sequence[VerifyKey]) -> Body:
    runs = db.execute(select(schema.run.c.name).order_by(schema.run.c.name)).scalars()
    tables = {"checkpoints": schema.checkpoint, "witnesses": schema.witness}
    head = db.execute(select(schema.head.c.seq, schema.head.c.hash)).mappings().one()
    return {
        "format": FORMAT,
        "head": dict(head),
        "history": history.rows(db),
        **{name: [dict(row) for row in db.execute(select(table)).mappings()] for name, table in tables.items()},
        "keys": [str(key) for key in keys],
        "claims": [dataclasses.asdict(found) for run in runs for found in claim.claims(db, run)],
    }


def exported_keys(file: str | Path) -> list[VerifyKey]:
    """The public keys in an export: to show them, and to compare them with ones that come from elsewhere.

    Raises:
        VerificationError: It is not an export.
    """
    try:
        return [VerifyKey.parse(text) for text in _read(file)["keys"]]
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise VerificationError.about("export", "has no readable keys", file=str(file)) from error


def verify_export(
    file: str | Path,
    *,
    expect: Sequence[str] = (),
    keys: Sequence[VerifyKey] = (),
    silos: Sequence[VerifyKey] = (),
    witnesses: Sequence[str] = (),
    reprice: bool = False,
) -> Report:
    """Check an export without its database, as `verify` checks a ledger.

    Args:
        file: What `export` wrote.
        expect: As for `verify`.
        keys: As for `verify`; those in the file itself are not trusted.
        silos: As for `verify`.
        witnesses: As for `verify`.
        reprice: As for `verify`.

    Returns:
        The problems; none if the history agrees with itself, with its claims and with what is given. Balances are
        those that the history tells, so there are none to compare.
    """
    try:
        content = _read(file)
        rows, head = _rows(content["history"]), content["head"]
        found = evidence.examine(rows, Known(hashes=expect, owners=keys, silos=silos, notes=witnesses))
        problems = list(ends(rows, head["seq"], head["hash"]))
        replay = Replay()
        for row in rows:
            problems += replay.play(row)
        problems += (*replay.overdrawn(), *unasked(replay))
        problems += compare("checkpoint", list(replay.checkpoints.values()), content["checkpoints"])
        problems += compare("witness", list(replay.witnesses.values()), content["witnesses"])
        problems += _claims(replay, content["claims"], {row["hash"] for row in rows})
        if reprice:
            problems += underpriced(replay)
    except VerificationError as error:
        return Report(ok=False, problems=(str(error),), counts={})
    except (KeyError, TypeError, ValueError, AttributeError):
        return Report(ok=False, problems=("export: it cannot be read",), counts={})
    return report(rows, found, problems)


def _read(file: str | Path) -> Body:
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VerificationError.about("export", "cannot be read", file=str(file)) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise VerificationError.about("export", f"is not of format {FORMAT}", file=str(file))
    return content


def _rows(history_: list[Body]) -> list[Body]:
    columns = [column.name for column in schema.event.columns]
    rows = [{name: row[name] for name in columns} for row in history_]
    texts = ("ts", "kind", "body", "prev", "hash")
    if any(type(row["seq"]) is not int or any(type(row[name]) is not str for name in texts) for row in rows):
        raise VerificationError.about("export", "has events that no ledger could hold")
    return rows


def _claims(replay: Replay, claims: list[Body], hashes: set[str]) -> Iterator[str]:
    """What claims say that the history does not."""
    told = {(found["run"], found["account"]): found for found in _told(replay)}
    for found in claims:
        name = f"claim of run {found['run']!r} for account {found['account']!r}"
        if found["ledger_sha256"] not in hashes:
            yield f"{name}: it was made from another history"
        mine = told.pop((found["run"], found["account"]), None)
        if mine is None:
            yield f"{name}: the history tells of no such charge"
            continue
        for part, value in mine.items():
            if _plain(found[part]) != value:
                yield f"{name}: {part} is {found[part]}, the history tells of {value}"
    for run, account in told:
        yield f"claim of run {run!r} for account {account!r}: it is missing"


def _plain(value: Any) -> Any:
    return [list(pair) for pair in value] if isinstance(value, (list, tuple)) else value


def _told(replay: Replay) -> Iterator[Body]:
    """Claims as the history alone tells them, without what an accountant computes."""
    events: dict[tuple[str, str], dict[str, int]] = {}
    for txid, lines in replay.lines.items():
        charge = replay.charges[txid]
        for line in lines:
            if charge["state"] != "aborted" and not line["derived"]:
                counts = events.setdefault((charge["run"], line["account"]), {})
                counts[line["key"]] = counts.get(line["key"], 0) + line["count"]
    planned: dict[tuple[str, str], list[list[Any]]] = {}
    for (run, name, key), item in sorted(replay.allowances.items()):
        planned.setdefault((run, name), []).append([key, item["allowed"]])
    paid = {where for where, item in replay.paid.items() if not item["derived"]}
    for run, name in sorted(paid | set(events)):
        account, grant = replay.accounts[name], replay.paid.get((run, name))
        admission = replay.admissions[run] if grant else None
        source, limit = (admission, grant) if grant and admission else (None, account)
        done = [list(pair) for pair in sorted(events.get((run, name), {}).items())]
        plan = planned.get((run, name), [])
        yield {
            "run": run,
            "account": name,
            "unit": account["unit"],
            "adjacency": account["adjacency"],
            "test": account["test"],
            "plan": source["digest"] if source else None,
            "noise_at": source["noise_at"] if source else None,
            "epsilon": limit["epsilon"],
            "delta": source["delta"] if source else account["delta"],
            "planned": plan,
            "events": done,
            "complete": bool(source) and done == plan,
        }
