"""The ledger as its history alone tells it: every event is played again, and what does not follow is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sqlalchemy import Table

from sordino.core.errors import SordinoError
from sordino.ledger import consents, reading, schema
from sordino.ledger.office import MOVES, Body, Office

FIRST_TERMS = {"scope": "silo", "parent": None, "overlap": None, "tier": None}
"""What earlier layouts did not write down: all accounts of the first were silos by themselves."""


@dataclass
class Replay:
    """The ledger as its history alone tells it."""

    accounts: dict[str, Body] = field(default_factory=dict)
    admissions: dict[str, Body] = field(default_factory=dict)
    paid: dict[tuple[str, str], Body] = field(default_factory=dict)
    allowances: dict[tuple[str, str, str], Body] = field(default_factory=dict)
    quotas: dict[str, set[str]] = field(default_factory=dict)
    runs: dict[str, Body] = field(default_factory=dict)
    charges: dict[str, Body] = field(default_factory=dict)
    lines: dict[str, list[Body]] = field(default_factory=dict)
    outbox: dict[str, Body] = field(default_factory=dict)
    checkpoints: dict[int, Body] = field(default_factory=dict)
    witnesses: dict[tuple[int, str], Body] = field(default_factory=dict)
    office: Office = field(default_factory=Office)
    alone: set[str] = field(default_factory=set)

    def play(self, row: Body) -> Iterator[str]:
        """Take one event; yields what is wrong with it."""
        steps: dict[str, Callable[[Body, Body], Iterator[str]]] = {
            "account-opened": self._opened,
            "limit-changed": self._raised,
            "frozen": self._moved,
            "thawed": self._moved,
            "retired": self._moved,
            "policy": self.office.install,
            "admitted": self._admitted,
            "run-opened": self._run,
            "reserved": self._reserved,
            "committed": self._settled,
            "forfeited": self._settled,
            "aborted": self._settled,
            "published": self._published,
            "consented": self._consented,
            "checkpoint": self._checkpoint,
            "witnessed": self._witnessed,
            "refused": self._refused,
            "migrated": self._migrated,
        }
        try:
            for problem in steps[row["kind"]](row, json.loads(row["body"])):
                yield f"history: event {row['seq']} ({row['kind']}) {problem}"
        except (KeyError, ValueError, TypeError, AttributeError, SordinoError):
            yield f"history: event {row['seq']} cannot be read"

    def _opened(self, row: Body, body: Body) -> Iterator[str]:
        name, limits = body["name"], ("limit_units", "delta_limit_units")
        if name in self.accounts:
            yield f"opens {name!r} a second time"
        terms = {key: value for key, value in body.items() if key not in (*limits, "signed")}
        yield from self.office.obey(row, body, "open", name, terms)
        columns = {"rdp_order" if key == "order" else key: value for key, value in terms.items()}
        state = {"spent_units": 0, "held_units": 0, "delta_spent_units": 0, "state": "open"}
        found = {**{key: body[key] for key in limits}, "policy": self.office.version}
        self.accounts[name] = {**FIRST_TERMS, **columns, **state, **found}
        yield from self.office.open(reading.terms(self.accounts[name]))

    def _raised(self, row: Body, body: Body) -> Iterator[str]:
        name, item = body["account"], self.accounts[body["account"]]
        yield from self._overdrawn(name)
        yield from self.office.obey(row, body, "raise", name, {key: body[key] for key in ("epsilon", "delta")})
        if not 0 < item["policy"] < self.office.version or item["state"] == "retired":
            yield f"raises the limit of {name!r}, which no newer policy allows"
        limits = {key: body[key] for key in ("epsilon", "delta", "limit_units", "delta_limit_units")}
        if any(limits[key] < item[key] for key in limits):
            yield f"lowers a limit of {name!r}"
        item.update(limits, policy=self.office.version)

    def _moved(self, row: Body, body: Body) -> Iterator[str]:
        name, item = body["account"], self.accounts[body["account"]]
        move = next(move for move in MOVES if move.kind == row["kind"])
        yield from self.office.obey(row, body, move.action, name, {"reason": body["reason"]})
        if item["state"] not in move.before:
            yield f"moves {name!r} from {item['state']} to {move.after}"
        item["state"] = move.after

    def _refused(self, _: Body, body: Body) -> Iterator[str]:
        if body["account"] and body["account"] not in self.accounts:
            yield f"refuses {body['account']!r}, which is not open"

    def _admitted(self, row: Body, body: Body) -> Iterator[str]:
        run = body["run"]
        if "signed" in body or (self.office.installed is not None and self.office.installed.policy.approves):
            yield from self.office.obey(row, body, "approve", run, {"plan": body["digest"]})
        if run in self.admissions:
            yield f"admits run {run!r} a second time"
        self.admissions[run] = {name: body[name] for name in ("run", "digest", "delta", "noise_at")}
        self.quotas[run] = set(body.get("quotas", ()))
        yield from self.office.admit(row, body)
        named = [name for line in body["lines"] for name in line[-1] if line[4]]
        yield from self._closed(name for line in body["lines"] for name in line[-1])
        yield from self._unpaid(named, {name for line in body["lines"] for name in line[-1]}, live=False)
        for epsilon, accountant, epsilon_units, delta_units, counts, names in body["lines"]:
            for name in names:
                self.accounts[name]["spent_units"] += epsilon_units
                self.accounts[name]["delta_spent_units"] += delta_units
                terms = {"epsilon": epsilon, "accountant": accountant}
                units = {"epsilon_units": epsilon_units, "delta_units": delta_units}
                self.paid[run, name] = {"run": run, "account": name, **terms, **units, "derived": not counts}
                self.alone.update([name] if counts else [])
                for key, count in counts:
                    entry = {"run": run, "account": name, "key": key, "allowed": count, "held": 0, "spent": 0}
                    self.allowances[run, name, key] = entry

    def _run(self, _: Body, body: Body) -> Iterator[str]:
        last = self.runs.get(body["run"], {"fence": 0})["fence"]
        # A silo adopts the fences of its coordinator, which may have been elsewhere in between.
        if body["fence"] <= last if body.get("given") else body["fence"] != last + 1:
            yield f"gives run {body['run']!r} the wrong fence"
        self.runs[body["run"]] = {"name": body["run"], "fence": body["fence"]}

    def _reserved(self, row: Body, body: Body) -> Iterator[str]:
        txid = row["txid"]
        if txid in self.charges:
            yield f"reserves {txid} a second time"
        if body["fence"] != self.runs[body["run"]]["fence"]:
            yield "was written by an owner that had been replaced"
        terms = {key: body[key] for key in ("run", "round", "purpose", "fence", "test")}
        self.charges[txid] = {"txid": txid, **terms, "state": "reserved", "reserved_at": row["ts"], "settled_at": None}
        self.lines[txid] = [
            {"txid": txid, "account": name, "key": key, "count": count, "units": units, "derived": derived}
            | {"consent": body.get("consents", {}).get(name), "absent": False}
            for derived, lines in ((False, body["lines"]), (True, body.get("above", [])))
            for key, count, units, names in lines
            for name in names
        ]
        yield from self.office.release(row, body, self.lines[txid])
        self.alone.update(line["account"] for line in self.lines[txid] if not line["derived"])
        yield from self._closed(line["account"] for line in self.lines[txid])
        named = [line["account"] for line in self.lines[txid] if not line["derived"]]
        yield from self._unpaid(named, {line["account"] for line in self.lines[txid]}, live=True)
        for quota in sorted(self.quotas.get(body["run"], set()) - {line["account"] for line in self.lines[txid]}):
            yield f"charges nothing to {quota!r}, a quota that its plan was admitted with"
        for line in self.lines[txid]:
            balance, unit, amount = self._balance(line, body["run"])
            balance[f"held{unit}"] += amount

    def _balance(self, line: Body, run: str) -> tuple[Body, str, int]:
        """What a line draws on, and how much: the run's allowance, or the account's filter."""
        if line["units"] is None:
            return self.allowances[run, line["account"], line["key"]], "", line["count"]
        return self.accounts[line["account"]], "_units", line["units"]

    def _settled(self, row: Body, body: Body) -> Iterator[str]:
        txid = row["txid"]
        charge = self.charges[txid]
        if charge["state"] != "reserved":
            yield f"settles {txid}, which is {charge['state']}"
        charge.update(state=row["kind"], settled_at=row["ts"])
        for line in self.lines[txid]:
            balance, unit, amount = self._balance(line, charge["run"])
            balance[f"held{unit}"] -= amount
            balance[f"spent{unit}"] += 0 if row["kind"] == "aborted" else amount
        if row["kind"] == "committed":
            self.outbox[txid] = {"txid": txid, "sha256": body["sha256"], "published_at": None}
            yield from consents.replayed(self.lines[txid], body.get("consents", {}), body.get("absent", ()))
            if body.get("found") and charge["fence"] >= self.runs[charge["run"]]["fence"]:
                yield f"finds {txid}, which its own process reserved"

    def _consented(self, _: Body, body: Body) -> Iterator[str]:
        told = {body["account"]: body["consent"]}
        yield from consents.replayed(self.lines[body["txid"]], told, ())

    def _published(self, row: Body, body: Body) -> Iterator[str]:
        if row["txid"] not in self.outbox:
            yield f"publishes {row['txid']}, which was not committed"
            return
        if self.outbox[row["txid"]]["sha256"] != body["sha256"]:
            yield f"publishes other bytes than {row['txid']} committed"
        self.outbox[row["txid"]]["published_at"] = row["ts"]

    def _checkpoint(self, row: Body, body: Body) -> Iterator[str]:
        if body["size"] != row["seq"] - 1:
            yield f"covers {body['size']} events: it was moved"
        self.checkpoints[body["size"]] = {"seq": body["size"], "root": body["root"], "note": body["note"]}

    def _witnessed(self, _: Body, body: Body) -> Iterator[str]:
        if body["size"] not in self.checkpoints:
            yield f"is of a checkpoint over {body['size']} events, which does not exist"
        row = {"seq": body["size"], "name": body["name"], "signature": body["signature"]}
        self.witnesses[body["size"], body["name"]] = row

    def _migrated(self, _: Body, body: Body) -> Iterator[str]:
        if body["from"] >= body["to"]:
            yield "leads back to an earlier layout"

    def _unpaid(self, named: Iterable[str], paid: set[str], *, live: bool) -> Iterator[str]:
        """Accounts that contain those that were charged, and did not pay: release by release if they are live."""
        containers = {above for name in named for above in self._above(name)}
        for above in sorted(containers - paid):
            if (self.accounts[above]["currency"] != "plan") is live:
                yield f"charges nothing to {above!r}, which contains those that it charges"

    def _above(self, name: str) -> Iterator[str]:
        above: str | None = self.accounts[name]["parent"]
        while above is not None:
            yield above
            above = self.accounts[above]["parent"]

    def _closed(self, names: Iterable[str]) -> Iterator[str]:
        """Accounts that pay although they, or one that contains them, are frozen or retired."""
        checked: set[str] = set()
        for name in names:
            above: str | None = name
            while above is not None and above not in checked:
                checked.add(above)
                if self.accounts[above]["state"] != "open":
                    yield f"charges {above!r}, which is {self.accounts[above]['state']}"
                above = self.accounts[above]["parent"]

    def overdrawn(self) -> Iterator[str]:
        """Limits that the history itself breaks, and people whose other account did not know what they paid."""
        for name in sorted(self.alone & {item["parent"] for item in self.accounts.values()}):
            yield f"account {name!r}: it was charged by itself, and contains others"
        for name in self.accounts:
            yield from self._overdrawn(name)
        for (run, name, key), item in self.allowances.items():
            if item["held"] + item["spent"] > item["allowed"]:
                yield f"account {name!r}: run {run!r} released {key} more often than its plan allows"

    def _overdrawn(self, name: str) -> Iterator[str]:
        item = self.accounts[name]
        if item["spent_units"] + item["held_units"] > item["limit_units"]:
            yield f"account {name!r}: more epsilon was spent than its limit"
        if item["delta_spent_units"] > item["delta_limit_units"]:
            yield f"account {name!r}: more delta was spent than its limit"

    def tables(self) -> dict[Table, list[Body]]:
        """The rows that each table must hold."""
        return {
            schema.account: list(self.accounts.values()),
            schema.admission: list(self.admissions.values()),
            schema.admission_line: list(self.paid.values()),
            schema.quota: [{"run": run, "account": name} for run, names in self.quotas.items() for name in names],
            schema.allowance: list(self.allowances.values()),
            schema.run: list(self.runs.values()),
            schema.charge: list(self.charges.values()),
            schema.charge_line: [line for lines in self.lines.values() for line in lines],
            schema.policy: self.office.rows,
            schema.outbox: list(self.outbox.values()),
            schema.checkpoint: list(self.checkpoints.values()),
            schema.witness: list(self.witnesses.values()),
        }
