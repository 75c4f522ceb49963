"""The ledger's verbs: what officers and auditors type, from the first key to the export."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path

import pytest

from sordino.cli import main
from sordino.cli.ledger import command
from sordino.core.errors import BudgetRefused
from sordino.core.types import NoiseAt
from sordino.ledger import Ledger
from sordino.privacy import events

STEP = events.gaussian(8.0)

POLICY = """
name = "hearts"
version = {version}
silos_per_person = 1
[officers]
ann = "{ann}"
bob = "{bob}"
[may.open]
officers = ["ann", "bob"]
[may.raise]
officers = ["ann", "bob"]
need = 2
[may.freeze]
officers = ["bob"]
[may.approve]
officers = ["ann"]
[tiers.bronze]
epsilon = 1.0
delta = 1e-6
rounds = 100
"""


@pytest.fixture
def call(capsys):
    """Runs a verb of the ledger: its stdout as text, or as JSON."""

    def run(*arguments):
        main(["ledger", *map(str, arguments)])
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in arguments else out

    return run


@pytest.fixture
def fails(capsys):
    """Runs a verb that must fail: its exit code and its one line."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["ledger", *map(str, arguments)])
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1, shown
        return end.value.code, shown

    return run


@pytest.fixture
def books(tmp_path, monkeypatch):
    """A folder to work in, and the ledger's name in it."""
    monkeypatch.chdir(tmp_path)
    return "books.db"


@pytest.fixture
def governed(books, call, tmp_path):
    """Two officers with keys and their policy in force."""
    keys = {name: call("key", name, "--out", f"{name}.key", "--json")["public"] for name in ("ann", "bob")}
    for version in (1, 2):
        (tmp_path / f"policy-{version}.toml").write_text(POLICY.format(version=version, **keys), encoding="utf-8")
    (tmp_path / "bob.sig").write_text(call("policy", "sign", "policy-1.toml", "--key", "bob.key"), encoding="utf-8")
    call("policy", "install", books, "policy-1.toml", "--key", "ann.key", "--signature", "bob.sig")
    return books


def run(ledger, name, count=4, **terms):
    ledger.admit(name, "d", {"north": [(STEP, count)]}, 1e-6, noise_at=NoiseAt.SILO, **terms)


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_verb_has_an_example_and_json(name, capsys):
    """As it is to be typed; what prints a result prints JSON as well."""
    with contextlib.suppress(SystemExit):
        main(["ledger", name, "--help"])
    out = capsys.readouterr().out
    assert f"  sordino ledger {name} " in out
    assert "\\b" not in out
    assert "--json" in out or name in ("policy", "order")


def test_an_account_is_opened_and_shown(books, call):
    entry = call("open", books, "north", "--epsilon", 4, "--delta", 1e-5, "--json")
    assert (entry["name"], entry["epsilon_left"], entry["state"], entry["scope"]) == ("north", 4.0, "open", "silo")
    call("open", books, "PHI", "--scope", "domain", "--epsilon", 2, "--delta", 1e-5, "--currency", "rdp", "--alpha", 16)
    call("open", books, "south", "--epsilon", 2, "--parent", "PHI", "--delta", 1e-5)
    with Ledger(books) as ledger:
        run(ledger, "first")
    shown = call("show", books)
    assert re.search(r"^PHI\n.*rdp at Rényi order 16", shown, re.MULTILINE)
    assert "\n  south\n" in shown, "what it contains is indented under it"
    assert re.search(r"\d+ more runs? like 'first' fit, by epsilon", shown)
    assert call("show", books, "--json")["accounts"][1]["runs_left"] > 0


def test_what_is_missing_is_one_line(books, fails, tmp_path):
    assert fails("open", books, "north", "--epsilon", 4)[0] == 2
    assert list(tmp_path.iterdir()) == [], "no ledger is made for an account that makes no sense"
    Ledger(books).close()
    for arguments, words in (
        (("open", books, "north", "--epsilon", 4), "needs --epsilon and --delta"),
        (("open", books, "north", "--epsilon", 4, "--delta", 1e-5, "--unit", "recrod"), "did you mean 'record'"),
        (("open", books, "north", "--tier", "bronze"), "needs a policy"),
        (("freeze", books, "north"), "is not open"),
        (("raise", books, "north"), "needs --order"),
        (("order", books, "freeze", "north", "--out", "x.json"), "has no policy"),
        (("history", books, "--kind", "refuse"), "did you mean 'refused'"),
        (("forecast", books, "--silo", "north"), "needs --window"),
        (("show", "no.db"), "is not there"),
        (("verify", books, "--witness", "no.jsonl"), "is not there"),
        (("policy", "install", books, "no.toml"), "cannot be read"),
    ):
        code, line = fails(*arguments)
        assert code == 2, arguments
        assert words in line


def test_a_server_is_as_good_as_a_file(call, postgresql):
    """The same verbs with a URL; what is shown names no password."""
    call("open", postgresql, "north", "--epsilon", 4, "--delta", 1e-5)
    call("freeze", postgresql, "north")
    assert "FROZEN" in call("show", postgresql)
    assert "1 frozen" in call("verify", postgresql)


def test_without_a_policy_anybody_freezes(books, call):
    call("open", books, "north", "--epsilon", 4, "--delta", 1e-5)
    assert "no policy" in call("policy", "show", books)
    assert call("freeze", books, "north", "--reason", "audit", "--json")["state"] == "frozen"
    assert "FROZEN" in call("show", books)
    assert call("thaw", books, "north", "--json")["state"] == "open"
    assert call("retire", books, "north", "--json")["state"] == "retired"
    assert "reason audit" in call("history", books, "--kind", "frozen")


def test_officers_open_freeze_and_raise(governed, call, fails):
    """From the order to the account; each order once, each raise under a newer policy, two officers for a raise."""
    code, line = fails("open", governed, "north", "--epsilon", 4, "--delta", 1e-5)
    assert code == 2
    assert "needs an order to open" in line
    told = call("order", governed, "open", "north", "--tier", "bronze", "--key", "ann.key", "--out", "open.json")
    assert "needs 1 of ann, bob, has 1" in told
    assert call("open", governed, "north", "--order", "open.json", "--json")["epsilon_limit"] == 1.0
    call("order", governed, "freeze", "north", "--reason", "audit", "--key", "ann.key", "--out", "freeze.json")
    assert fails("freeze", governed, "north", "--order", "freeze.json")[0] == 2
    assert "signed by ann, bob" in call("sign", "freeze.json", "--key", "bob.key")
    call("freeze", governed, "north", "--order", "freeze.json")
    assert fails("thaw", governed, "north", "--order", "freeze.json")[0] == 2
    call("policy", "install", governed, "policy-2.toml", "--key", "ann.key", "--key", "bob.key")
    limits = ("--epsilon", 2, "--delta", 1e-6)
    call("order", governed, "raise", "north", *limits, "--key", "ann.key", "--key", "bob.key", "--out", "raise.json")
    assert call("raise", governed, "north", "--order", "raise.json", "--json")["epsilon_limit"] == 2.0
    assert "signed by ann, bob" in call("history", governed, "--kind", "limit-changed")
    assert call("policy", "show", governed, "--json")["version"] == 2
    assert "ok" in call("verify", governed)


def test_a_forged_order_ends_with_code_5(governed, call, fails, tmp_path):
    call("order", governed, "open", "north", "--tier", "bronze", "--key", "ann.key", "--out", "open.json")
    text = (tmp_path / "open.json").read_text(encoding="utf-8").replace('"epsilon": 1.0', '"epsilon": 9.0')
    (tmp_path / "open.json").write_text(text, encoding="utf-8")
    code, line = fails("open", governed, "north", "--order", "open.json")
    assert code == 5
    assert "officer='ann'" in line


def test_an_approved_plan_is_admitted(governed, call):
    """The order for `approve` is what the ledger asks for where the policy names who may give it."""
    from sordino.ledger.officers import Signed

    call("order", governed, "open", "north", "--epsilon", 8, "--delta", 1e-5, "--key", "ann.key", "--out", "o.json")
    call("open", governed, "north", "--order", "o.json")
    call("order", governed, "approve", "first", "--plan", "d", "--key", "ann.key", "--out", "a.json")
    with Ledger(governed) as ledger:
        run(ledger, "first", approval=Signed.parse(Path("a.json").read_text(encoding="utf-8")))
    assert "ok" in call("verify", governed)


def test_a_federation_takes_the_declared_number_of_silos(governed, call):
    terms = ("--scope", "federation", "--epsilon", 8, "--delta", 1e-5)
    call("order", governed, "open", "all", *terms, "--key", "ann.key", "--out", "o.json")
    assert call("open", governed, "all", "--order", "o.json", "--json")["overlap"] == 1


def test_the_forecast_is_said_for_runs_and_for_blocks(books, call):
    call("open", books, "north", "--epsilon", 8, "--delta", 1e-5)
    assert "has paid nothing yet" in call("forecast", books)
    with Ledger(books) as ledger:
        run(ledger, "first")
        run(ledger, "second")
        with pytest.raises(BudgetRefused):
            run(ledger, "third", count=10**6)
    (one,) = call("forecast", books, "--json")
    assert one["runs"] > 0
    assert one["used_up"] > "2026"
    assert f"{one['runs']} more like 'second'" in call("forecast", books)
    assert call("history", books, "--kind", "refused", "--json")[0]["body"]["account"] == "north"
    for name in ("east/day[..,100)", "east/day[100,130)"):
        call("open", books, name, "--scope", "block", "--epsilon", 3, "--delta", 1e-5)
    terms = ("--silo", "east", "--window", 30, "--every", 15, "--price", 1, "--delta", 1e-6, "--runs", 6)
    plan = call("forecast", books, *terms, "--json")
    assert plan["steps"][0]["charges"] == ["east/day[100,130)"]
    assert (plan["most"], plan["affordable"]) == (3, 1.0)
    assert "open east/day[130,160)" in call("forecast", books, *terms)


def test_silos_witness_and_a_roll_back_is_found(books, call, fails, tmp_path):
    """Countersigned twice; a ledger that was put back is refused by `verify` and by the silo."""
    keys = {name: call("key", name, "--out", f"{name}.key").strip() for name in ("books", "north")}
    call("open", books, "north", "--epsilon", 4, "--delta", 1e-5)
    early = (tmp_path / books).read_bytes()
    see = ("witness", books, "--as", "north.key", "--memory", "seen.jsonl", "--of", keys["books"], "--key", "books.key")
    call("freeze", books, "north")
    assert call(*see, "--json") == {"ledger": "books", "silo": "north", "size": 2, "new": True}
    assert "already" in call(*see)
    known = ("--key", keys["books"], "--silo", keys["north"], "--witness", "seen.jsonl")
    assert call("verify", books, *known, "--reprice", "--json")["ok"]
    call("export", books, "export.json", "--key", keys["books"])
    assert "1 frozen" in call("verify", "export.json", *known)
    (tmp_path / books).write_bytes(early)
    for left in tmp_path.glob("books.db-*"):
        left.unlink()
    code, line = fails("verify", books, *known)
    assert code == 5
    assert "rolled back" in line
    assert fails(*see)[0] == 5


def test_the_commands_of_the_page_run(books, call, tmp_path):
    """docs/explanation/ledger.md from top to bottom, with keys that are made on the way."""
    page = (Path(__file__).parents[3] / "docs/explanation/ledger.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (policy,) = [block for block in blocks if "[officers]" in block]
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)).splitlines()
    assert len(commands) > 20
    for command_line in commands:
        if "policy sign" in command_line:
            for name in ("ann", "bob"):
                key = (tmp_path / f"{name}.pub").read_text(encoding="utf-8").strip()
                policy = re.sub(rf"^{name} = .*$", lambda _, n=name, k=key: f'{n} = "{k}"', policy, flags=re.MULTILINE)
            (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
        verb, _, out = command_line.partition(" > ")
        shown = call(*shlex.split(verb)[2:])
        if out:
            (tmp_path / out).write_text(shown, encoding="utf-8")
