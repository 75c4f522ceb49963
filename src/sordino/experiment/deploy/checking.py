"""What is wrong with a folder of a federation, in words: before it is started, and while it runs."""

from __future__ import annotations

import datetime as dt
import email.utils
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from sordino.core.errors import ConfigError, SordinoError, VerificationError
from sordino.experiment.deploy import bundle, certificates, federation, flower_code, layout, processes, signatures
from sordino.experiment.site.sealing import KEY
from sordino.federation.secure.homomorphic import Key
from sordino.ledger.keys import SigningKey
from sordino.ledger.ledger import Ledger
from sordino.ledger.rules import read_rules
from sordino.ledger.silo import FILE as RULES

T = TypeVar("T")

_SKEW_S = 300
"""Flower refuses a node whose clock differs by more."""

_PRIVATE = ("server.key", "coordinator.pem", "node.key", "key.pem", "superexec.secret", "ledger.db", "ca.key", KEY)


def check(folder: Path, *, code: bytes | None = None) -> dict[str, list[str]]:
    """What is wrong, by place: a coordinator's folder, a site's, or a whole federation's.

    Args:
        folder: One of them.
        code: The bundle that sites are to sign; the one of the code that runs here, if none is given.

    Raises:
        ConfigError: It is none of them.
    """
    code = bundle.fab() if code is None else code
    if (folder / layout.SITE).exists():
        return {folder.name: [*site(folder)]}
    if (folder / layout.COORDINATOR).exists():
        return {"coordinator": [*coordinator(folder, code)]}
    if (folder / federation.FILE).exists():
        room, sites = folder / "coordinator", layout.site_folders(folder)
        found = {"coordinator": [*coordinator(room, code), *_modes(folder)]}
        return found | {name: [*site(at), *_together(room, at, code)] for name, at in sites.items()}
    raise ConfigError.about(
        "deploy", "is no folder of a federation", "make it with `sordino deploy init`", folder=str(folder)
    )


def coordinator(folder: Path, code: bytes) -> Iterator[str]:
    """What is wrong with a coordinator's folder."""
    mine, problem = _tried(lambda: layout.read_coordinator(folder))
    if mine is None:
        yield problem
        return
    checks: list[Callable[[], object]] = [
        flower_code.require_flower,
        lambda: certificates.check_server(folder, mine.host),
        lambda: SigningKey.load(folder / "coordinator.pem"),
    ]
    yield from _problems(checks)
    yield from _modes(folder)
    keys = processes.site_keys(folder)
    if not keys:
        yield "sites/: no site's node.pub is here, so no node is let in"
    for name, key in keys.items():
        if not key.startswith(b"ecdsa-sha2-nistp"):
            yield f"sites/{name}.pub: is not a node's public key; copy node.pub again"
    signed, problem = _tried(lambda: signatures.read(folder, code))
    if not signed:
        yield problem or "signatures/: nobody has signed the code that runs here; see `sordino deploy sign`"
    if _answers("localhost", mine.port, folder / "ca.pem")[0] is None:
        yield from (f"port {at}: is taken by another program" for at in (mine.port, mine.inside) if taken(at))


def site(folder: Path) -> Iterator[str]:
    """What is wrong with a site's folder."""
    mine, problem = _tried(lambda: layout.read_site(folder))
    if mine is None:
        yield problem
        return
    checks: list[Callable[[], object]] = [
        flower_code.require_flower,
        lambda: certificates.check_dates(certificates.read_certificate(folder / "ca.pem"), "ca.pem"),
        lambda: certificates.check_node_key(folder),
        lambda: _check_silo(folder, mine.name),
    ]
    yield from _problems(checks)
    if (folder / KEY).exists():
        yield from _problems([lambda: Key.load(folder / KEY)])
    yield from _modes(folder)
    for name in ("trusted.yaml", "superexec.secret"):
        if not (folder / name).exists():
            yield f"{name}: is missing; copy the folder again"
    if mine.data and not Path(mine.data).exists():
        yield f"data: {mine.data} is not there"
    yield from _unreachable(mine.superlink, folder / "ca.pem")


def _check_silo(folder: Path, name: str) -> None:
    rules = read_rules(folder / RULES)
    key = SigningKey.load(folder / rules.key)
    if not rules.name == key.name == name:
        raise VerificationError.about("silo", "is another silo's", rules=rules.name, key=key.name, site=name)
    if not (folder / rules.ledger).exists():
        raise VerificationError.about("silo", "is missing: what was spent is no longer known", file=rules.ledger)
    with Ledger(folder / rules.ledger) as ledger:
        ledger.balance(name)
    if not rules.coordinators:
        raise VerificationError.about("silo", "names no coordinator, so nobody gets a grant", file=RULES)


def _together(room: Path, at: Path, code: bytes) -> Iterator[str]:
    """What does not fit between a coordinator's folder and a site's, where both are at hand."""
    name = at.name
    pairs = [(room / "sites" / f"{name}.pub", at / "node.pub", "its node key is not registered at the coordinator")]
    pairs += [(room / "ca.pem", at / "ca.pem", "ca.pem is another authority's than the coordinator's")]
    others = [path / KEY for path in at.parent.iterdir() if (path / KEY).exists()]
    if others and {path.read_bytes() for path in others} != {_content(at / KEY)}:
        yield f"{KEY}: is not the same at all sites"
    for left, right, words in pairs:
        if not left.exists() or not right.exists() or left.read_bytes() != right.read_bytes():
            yield words
    rules, _ = _tried(lambda: read_rules(at / RULES))
    key, _ = _tried(lambda: SigningKey.load(room / "coordinator.pem"))
    if rules and key and key.public not in rules.coordinator_keys:
        yield "silo.toml: does not name this coordinator's key, so it gets no grant"
    trusted = (at / "trusted.yaml").read_text(encoding="utf-8") if (at / "trusted.yaml").exists() else ""
    signed, _ = _tried(lambda: signatures.read(room, code))
    if not any(json.dumps(one.reviewer) + ":" in trusted for one in signed or []):
        yield "nobody whom it trusts has signed the code that runs here; see `sordino deploy sign`"


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def _modes(folder: Path) -> Iterator[str]:
    for name in _PRIVATE:
        path = folder / name
        if path.exists() and not layout.owner_only(path):
            yield f"{name}: can be read by others; chmod 600 {name}"


def _unreachable(superlink: str, authority: Path) -> Iterator[str]:
    host, _, number = superlink.rpartition(":")
    if not number.isdigit():
        yield f"superlink: {superlink!r} must be host:port"
        return
    date, words = _answers(host.strip("[]"), int(number), authority)
    if date is None:
        yield f"coordinator {superlink}: {words}"
        return
    skew = abs(date.timestamp() - time.time())
    if skew > _SKEW_S:
        yield f"clock: differs by {skew:.0f} s from the coordinator's; more than {_SKEW_S} s and it takes no message"


def _answers(host: str, number: int, authority: Path) -> tuple[dt.datetime | None, str]:
    """The coordinator's time if it answers, or why it does not."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection(host, number, timeout=5, context=context)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        connection.close()
    except ssl.SSLCertVerificationError as error:
        return None, f"its certificate is not the one expected ({error.verify_message})"
    except (OSError, http.client.HTTPException) as error:
        return None, f"cannot be reached ({error.__class__.__name__}: {error})"
    date = answer.headers.get("Date")
    if answer.status != http.client.OK or date is None:
        return None, f"answers, but not as a coordinator (status {answer.status})"
    return email.utils.parsedate_to_datetime(date), ""


def taken(number: int) -> bool:
    """Whether another program listens on a port of loopback."""
    try:
        socket.create_server(("127.0.0.1", number)).close()
    except OSError:
        return True
    return False


def _problems(checks: list[Callable[[], object]]) -> Iterator[str]:
    for one in checks:
        value, problem = _tried(one)
        if value is None and problem:
            yield problem


def _tried(one: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return one(), ""
    except (SordinoError, OSError) as problem:
        return None, str(problem)
