"""A federation as data: one coordinator, its sites, and what each of them may lose in all.

name = "hearts"
officers = ["officer+…"]              whose signatures a plan needs at every site
[coordinator]
host = "coordinator.example.org"      the name by which sites reach it
[sites.north]
epsilon = 8.0
delta = 1e-5
data = "/srv/heart.csv"               where the data lies at that site; empty: as the experiment says
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sordino.core import checks, tables
from sordino.core.errors import ConfigError
from sordino.core.types import Adjacency, Unit
from sordino.federation.secure.homomorphic import MOST
from sordino.ledger.keys import VerifyKey

FILE = "federation.toml"

Isolation: TypeAlias = Literal["process", "subprocess"]
"""Who runs a site's share of a message: its own long-lived trainer, or a process that Flower starts for each."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9a-fA-F]*(:[0-9a-fA-F]*){2,7}")


def port(where: str, **argument: int) -> None:
    """Return only if it is a number of a port.

    Raises:
        ConfigError: It is not.
    """
    for name, value in argument.items():
        if not 1 <= value <= 65535:
            raise ConfigError.about(where, "must lie in 1 … 65535", **{name: value})


def word(where: str, name: str) -> None:
    """Return only if a name can be that of a folder, a service and a key.

    Raises:
        ConfigError: It cannot.
    """
    if not _WORD.fullmatch(name):
        raise ConfigError.about(where, "must be letters, digits, `-` and `_`, 63 at most", name=name)


def host(where: str, name: str) -> None:
    """Return only if it is the name or number of a host: it stands in scripts and in certificates.

    Raises:
        ConfigError: It is not.
    """
    if not _HOST.fullmatch(name):
        raise ConfigError.about(where, "must be a host name or an IP address", host=name)


@dataclass(frozen=True)
class Coordinator:
    """Where the coordinator listens.

    Args:
        host: The name by which sites reach it; it stands in the certificate.
        port: The one port that is open to sites.
        listen: The address of that port; empty: every address, or loopback only if `host` is `localhost`.
        inside: The port of the coordinator's own run, on loopback.
        names: Further names for the certificate.
        database: Flower's database; empty: in memory that outlives the process but not the machine.
        most_mib: The largest request from a site, in MiB. Flower cuts arrays into pieces of 5 MB.
        days: For how many days the server's certificate holds.
        telemetry: Whether Flower may report to its maker.
    """

    host: str = "localhost"
    port: int = 9443
    listen: str = ""
    inside: int = 9444
    names: tuple[str, ...] = ()
    database: str = ""
    most_mib: int = 16
    days: int = 365
    telemetry: bool = False

    def __post_init__(self) -> None:
        where = "federation.coordinator"
        port(where, port=self.port, inside=self.inside)
        checks.count(where, most_mib=self.most_mib, days=self.days)
        for name in (self.host, *self.names, *filter(None, [self.listen])):
            host(where, name)
        if self.port == self.inside:
            raise ConfigError.about(where, "must differ from `port`", "choose another", inside=self.inside)

    @property
    def address(self) -> str:
        """Where it listens for sites."""
        return self.listen or ("127.0.0.1" if self.host in {"localhost", "127.0.0.1"} else "0.0.0.0")  # noqa: S104


@dataclass(frozen=True)
class Site:
    """One site: whose people, and what they may lose in all.

    Args:
        epsilon: What its people may lose in all.
        delta: What its people may lose in all.
        unit: Whose presence is hidden.
        adjacency: The neighbouring relation.
        data: Where the data lies at the site; empty: as the experiment says.
        port: The port of its node on the site's own loopback; 0: one that no other site here has.
        isolation: Who runs its share of a message.
        test: For simulation: no guarantee.
    """

    epsilon: float
    delta: float
    unit: Unit = Unit.RECORD
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    data: str = ""
    port: int = 0
    isolation: Isolation = "process"
    test: bool = False

    def __post_init__(self) -> None:
        checks.positive("federation.sites", epsilon=self.epsilon)
        checks.fraction("federation.sites", delta=self.delta)
        if self.port:
            port("federation.sites", port=self.port)


@dataclass(frozen=True)
class Federation:
    """All of it.

    Args:
        sites: By name, as in the data.
        name: Of the federation; names its certificate authority.
        coordinator: Where the coordinator listens.
        officers: Public keys of those who may approve plans, written into every site's rules.
        reviewers: Public keys of those who may sign the code for every site. A site's own key always may, at that site.
        homomorphic: Whether the sites get one secret key, for experiments with the table [homomorphic]; 2 to 5 sites.
    """

    sites: dict[str, Site]
    name: str = "federation"
    coordinator: Coordinator = Coordinator()
    officers: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    homomorphic: bool = False

    def __post_init__(self) -> None:
        word("federation", self.name)
        if not self.sites:
            raise ConfigError.about("federation.sites", "is empty", "name at least one site")
        for name in self.sites:
            word("federation.sites", name)
        if len({name.lower() for name in self.sites}) < len(self.sites):
            raise ConfigError.about("federation.sites", "differ in upper and lower case only", names=[*self.sites])
        if self.homomorphic and not 2 <= len(self.sites) <= MOST:
            raise ConfigError.about(
                "federation",
                f"is for 2 to {MOST} sites: all of them hold one key",
                "use [secure_sum]",
                homomorphic=True,
            )
        for key in (*self.officers, *self.reviewers):
            VerifyKey.parse(key)

    def ports(self) -> dict[str, int]:
        """The port of each site's node: its own choice, or the next one from 9501 that nobody chose."""
        chosen = {site.port for site in self.sites.values()} | {self.coordinator.port, self.coordinator.inside}
        free = (number for number in range(9501, 65535) if number not in chosen)
        return {name: site.port or next(free) for name, site in self.sites.items()}


def read(file: Path) -> Federation:
    """A federation from its file.

    Raises:
        ConfigError: It cannot be read, or has an unknown key or a wrong value.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigError.about(
            "federation", f"cannot be read: {problem}", "make it with `sordino deploy init`", file=str(file)
        ) from None
    return tables.build(Federation, table, "federation")
