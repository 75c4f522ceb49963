"""Files out of a folder, a zip or wheel, a tar archive or a Debian package, read without unpacking or installing."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sordino.core.errors import ConfigError

BROKEN = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError)


def members(where: str, path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files, by their path inside the archive or folder.

    Args:
        where: The data set's name in messages.
        path: A folder, a .zip or .whl, a .tar, .tgz or .tar.gz, a .deb, or one plain file.
        wanted: Says of a member's path (with `/`) whether to read it.

    Returns:
        Contents by path, sorted; empty if nothing is wanted.

    Raises:
        ConfigError: The archive is broken.
    """
    try:
        return dict(sorted(_pairs(path, wanted)))
    except BROKEN as problem:
        raise ConfigError.about(where, f"cannot be read ({problem})", "get it again", path=path.name) from None


def named(where: str, path: Path, names: Sequence[str], plain: Callable[[str], str]) -> dict[str, bytes]:
    """Exactly the files of the given names, wherever in the archive or folder they lie.

    Args:
        where: The data set's name in messages.
        path: As in `members`.
        names: Published names, all needed.
        plain: A member's path to its published name, e.g. `base`.

    Returns:
        Contents by published name, in the order of `names`.

    Raises:
        ConfigError: One is missing, or lies in two folders, as when a path holds two data sets.
    """
    found: dict[str, bytes] = {}
    folders: dict[str, str] = {}
    for member, content in members(where, path, lambda member: plain(member) in names).items():
        name, folder = plain(member), member.removesuffix(base(member))
        if folders.setdefault(name, folder) != folder:
            rule = f"holds {name!r} in {folders[name]!r} and in {folder!r}"
            raise ConfigError.about(where, rule, "give the path of one of the two folders", path=path.name)
        found[name] = content
    for name in names:
        if name not in found:
            raise ConfigError.about(where, f"lacks the file {name!r}", "give the folder or archive", path=path.name)
    return {name: found[name] for name in names}


def within(where: str, content: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files of a tar archive that lies in another archive, by their path inside it, sorted.

    Raises:
        ConfigError: The archive is broken.
    """
    try:
        return dict(sorted(_tar(content, wanted)))
    except BROKEN as problem:
        raise ConfigError.about(where, f"holds a broken archive ({problem})", "get it again") from None


def base(name: str) -> str:
    """Last part of a member's path.

    >>> base("package/data/train-images-idx3-ubyte")
    'train-images-idx3-ubyte'
    """
    return name.rsplit("/", 1)[-1]


def _pairs(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        return _folder(path, wanted)
    if path.suffix in (".zip", ".whl"):
        return _zip(path, wanted)
    if path.name.endswith((".tar", ".tgz", ".tar.gz")):
        return _tar(path.read_bytes(), wanted)
    if path.suffix == ".deb":
        return _tar(_payload(path.read_bytes()), wanted)
    return iter([(path.name, path.read_bytes())] if wanted(path.name) else [])


def _folder(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        if file.is_file() and wanted(name):
            yield name, file.read_bytes()


def _zip(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("/") and wanted(name):
                yield name, archive.read(name)


def _tar(content: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if file is not None:
                yield member.name, file.read()


def _payload(content: bytes) -> bytes:
    """The data.tar of a .deb: an ar container of 60-byte headers, each member padded to even length."""
    at = 8
    while content.startswith(b"!<arch>\n") and at + 60 <= len(content):
        name, size = content[at : at + 16], int(content[at + 48 : at + 58])
        if name.startswith(b"data.tar"):
            return content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    msg = "not a Debian package"
    raise ValueError(msg)
