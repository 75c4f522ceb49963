"""The folders of a federation: what `sordino deploy init` writes, and the small file that each machine reads.

OUT/federation.toml                       what it was made from
OUT/ca.key                                signs servers; keep it off all machines
OUT/coordinator/  coordinator.toml  ca.pem server.pem server.key  sites/*.pub silos/*.pub  coordinator.pem, signing
OUT/sites/NAME/   site.toml  ca.pem  node.key node.pub  silo.toml key.pem ledger.db  trusted.yaml  superexec.secret
                  homomorphic.key, if asked for: the same at all sites
OUT/docker-compose.yml

A folder goes to its machine whole. Each private key is in one folder only, readable by its owner only; but
that one, which the sites share.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sordino.core import checks, tables
from sordino.core.errors import ConfigError
from sordino.experiment.deploy import certificates, federation, services, signatures
from sordino.experiment.deploy.federation import Coordinator, Federation, Isolation, Site
from sordino.experiment.site.sealing import KEY
from sordino.federation.secure.homomorphic import Key
from sordino.ledger.account import Account
from sordino.ledger.enrolment import enrol
from sordino.ledger.keys import SigningKey, VerifyKey

SITE, COORDINATOR = "site.toml", "coordinator.toml"

SILOS = "silos"
"""In a coordinator's folder: the public keys by which silos sign grants. Those of `sites/` are their nodes'."""

T = TypeVar("T")


@dataclass(frozen=True)
class SiteFile:
    """`site.toml`: where a site's own processes meet, and where they find the coordinator.

    Args:
        name: The site's, as in the data.
        superlink: The coordinator, as host:port.
        port: The port of the node, on loopback, where the trainer asks for work.
        data: Where the data lies here; empty: as the experiment says.
        isolation: Who runs the site's share of a message.
        socket: The trainer's own socket, in this folder.
        telemetry: Whether Flower may report to its maker.
    """

    name: str
    superlink: str
    port: int
    data: str = ""
    isolation: Isolation = "process"
    socket: str = "trainer.sock"
    telemetry: bool = False

    def __post_init__(self) -> None:
        federation.word("site", self.name)
        federation.port("site", port=self.port)


@dataclass(frozen=True)
class CoordinatorFile:
    """`coordinator.toml`: the fields are those of `federation.Coordinator`, as they hold on this machine.

    Args:
        name: The federation's.
        host: The name by which sites reach it.
        port: The one port that is open to sites.
        listen: The address of that port.
        inside: The port of the coordinator's own run, on loopback.
        database: Flower's database; empty: in memory.
        most_mib: The largest request from a site, in MiB.
        telemetry: Whether Flower may report to its maker.
    """

    name: str
    host: str
    port: int
    listen: str
    inside: int
    database: str = ""
    most_mib: int = 16
    telemetry: bool = False

    def __post_init__(self) -> None:
        federation.port("coordinator", port=self.port, inside=self.inside)
        checks.count("coordinator", most_mib=self.most_mib)


def read_site(folder: Path) -> SiteFile:
    """A site's file.

    Raises:
        ConfigError: The folder is not a site's.
    """
    return _read(SiteFile, folder / SITE, "site")


def read_coordinator(folder: Path) -> CoordinatorFile:
    """A coordinator's file.

    Raises:
        ConfigError: The folder is not a coordinator's.
    """
    return _read(CoordinatorFile, folder / COORDINATOR, "coordinator")


def _read(cls: type[T], file: Path, where: str) -> T:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigError.about(
            where, f"cannot be read: {problem}", "make it with `sordino deploy init`", file=str(file)
        ) from None
    return tables.build(cls, table, where)


def site_folders(folder: Path) -> dict[str, Path]:
    """The sites' folders below a federation's, by name."""
    return {path.parent.name: path.parent for path in sorted((folder / "sites").glob(f"*/{SITE}"))}


def write(plan: Federation, out: Path) -> dict[str, VerifyKey]:
    """Write a federation's folders: all of them, or none.

    Args:
        plan: What to write.
        out: A new folder.

    Returns:
        The public keys of the coordinator (under "coordinator") and of each site.

    Raises:
        ConfigError: The folder exists already.
    """
    if out.exists():
        raise ConfigError.about(
            "deploy", "exists already; keys are never overwritten", "choose another", folder=str(out)
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        keys = _write(plan, draft)
        draft.rename(out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return keys


def renew(out: Path, days: int) -> None:
    """Make a coordinator's certificate and its key anew, by the same authority; sites need nothing new.

    Args:
        out: A federation's folder, with `ca.key` in it.
        days: For how many days it holds.
    """
    plan, room = federation.read(out / federation.FILE), out / "coordinator"
    with tempfile.TemporaryDirectory(dir=room) as draft:
        hosts = _hosts(plan.coordinator)
        certificates.make_server(hosts, days, room / "ca.pem", out / "ca.key", Path(draft))
        for name in ("server.key", "server.pem"):
            (Path(draft) / name).replace(room / name)


def _hosts(where: Coordinator) -> list[str]:
    return [where.host, *where.names, "coordinator"]  # the last one is its name among containers


def _write(plan: Federation, out: Path) -> dict[str, VerifyKey]:
    (out / federation.FILE).write_text(_federation_text(plan), encoding="utf-8")
    room = out / "coordinator"
    for folder in (room / "sites", room / SILOS, room / signatures.FOLDER, room / "flower"):
        folder.mkdir(mode=0o700, parents=True)
    certificates.make_authority(plan.name, room / "ca.pem", out / "ca.key")
    where = plan.coordinator
    certificates.make_server(_hosts(where), where.days, room / "ca.pem", out / "ca.key", room)
    key = SigningKey.generate(f"{plan.name}-coordinator")
    key.save(room / "coordinator.pem")
    mine = CoordinatorFile(
        plan.name, where.host, where.port, where.address, where.inside, where.database, where.most_mib, where.telemetry
    )
    (room / COORDINATOR).write_text(_text(mine), encoding="utf-8")
    services.write_coordinator(room)
    keys = {"coordinator": key.public}
    for name, number in plan.ports().items():
        keys[name] = _write_site(plan, name, number, key.public, out)
    for name in plan.sites:  # silos mask with each other by keys that did not come from the coordinator
        shutil.copytree(room / SILOS, out / "sites" / name / SILOS)
    if plan.homomorphic:
        shared = Key.generate().content
        for name in plan.sites:
            certificates.write_private(out / "sites" / name / KEY, shared)
    services.write_compose(out, where, [*plan.sites])
    return keys


def _write_site(plan: Federation, name: str, number: int, coordinator: VerifyKey, out: Path) -> VerifyKey:
    site, folder, room = plan.sites[name], out / "sites" / name, out / "coordinator"
    officers = [VerifyKey.parse(text) for text in plan.officers]
    public = enrol(folder, _account(name, site), coordinators=[coordinator], officers=officers)
    (folder / "ledger.db").chmod(0o600)
    (room / "sites" / f"{name}.pub").write_bytes(certificates.make_node_key(folder))
    (room / SILOS / f"{name}.pub").write_text(f"{public}\n", encoding="utf-8")
    shutil.copyfile(room / "ca.pem", folder / "ca.pem")
    certificates.write_private(folder / "superexec.secret", secrets.token_hex(32).encode())
    reviewers = [public, *map(VerifyKey.parse, plan.reviewers)]
    (folder / "trusted.yaml").write_text(signatures.trusted_entities(reviewers), encoding="utf-8")
    superlink = f"{plan.coordinator.host}:{plan.coordinator.port}"
    mine = SiteFile(name, superlink, number, site.data, site.isolation, telemetry=plan.coordinator.telemetry)
    (folder / SITE).write_text(_text(mine), encoding="utf-8")
    (folder / "flower").mkdir(mode=0o700)
    services.write_site(folder, name, trainer=site.isolation == "process")
    return public


def _account(name: str, site: Site) -> Account:
    return Account(name, site.unit, site.adjacency, site.epsilon, site.delta, test=site.test)


def _text(value: Any) -> str:
    """A dataclass as TOML, with its own words about each field."""
    about = dict(
        line.strip().split(": ", 1) for line in (type(value).__doc__ or "").splitlines() if line.startswith(" " * 8)
    )
    return "".join(f"# {about[name]}\n{name} = {_value(item)}\n" for name, item in dataclasses.asdict(value).items())


def _federation_text(plan: Federation) -> str:
    lines = [
        f"name = {_value(plan.name)}",
        f"officers = {_value(plan.officers)}",
        f"reviewers = {_value(plan.reviewers)}",
        f"homomorphic = {_value(plan.homomorphic)}",
    ]
    lines += ["", "[coordinator]", *_lines(plan.coordinator)]
    for name, site in plan.sites.items():
        lines += ["", f"[sites.{name}]", *_lines(site)]
    return "\n".join(lines) + "\n"


def _lines(value: Any) -> list[str]:
    return [f"{name} = {_value(item)}" for name, item in dataclasses.asdict(value).items()]


def _value(item: object) -> str:
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(_value, item)) + "]"
    if isinstance(item, float):
        return repr(item)
    return json.dumps(item, ensure_ascii=False)  # texts, whole numbers and truth values are written as in JSON


def owner_only(path: Path) -> bool:
    """Whether only its owner can read a file."""
    return os.name != "posix" or not path.stat().st_mode & 0o077
