"""Members of archives and folders."""

from __future__ import annotations

import pytest
from published_formats import deb, tar, write, write_zip

from sordino.core.errors import ConfigError
from sordino.data.archives import base, members, named

FILES = {"data/b.txt": b"two", "data/a.txt": b"one", "data/c.md": b"three"}


def written(folder, kind):
    if kind == "folder":
        return write(folder / "root", FILES)
    path = folder / f"root{kind}"
    if kind in (".zip", ".whl"):
        return write_zip(path, FILES)
    path.write_bytes(deb(FILES) if kind == ".deb" else tar(FILES))
    return path


@pytest.mark.parametrize("kind", ["folder", ".zip", ".whl", ".tgz", ".tar.gz", ".deb"])
def test_every_container_gives_the_same_members(tmp_path, kind):
    """A folder and an archive of the same files cannot be told apart."""
    found = members("mine", written(tmp_path, kind), lambda name: name.endswith(".txt"))

    assert list(found.items()) == [("data/a.txt", b"one"), ("data/b.txt", b"two")]


@pytest.mark.parametrize("kind", [".zip", ".tgz", ".deb"])
def test_a_broken_archive_is_one_clear_line(tmp_path, kind):
    """Cut in half, an archive is an error that names it."""
    path = written(tmp_path, kind)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(ConfigError, match=f"mine: path='root{kind}' cannot be read"):
        members("mine", path, lambda _: True)


def test_a_plain_file_is_its_own_only_member(tmp_path):
    """One file may stand for a folder of one."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"one")

    assert members("mine", path, lambda _: True) == {"a.txt": b"one"}


def test_named_members_must_be_there_and_in_one_folder(tmp_path):
    """A missing file and two data sets under one path are both errors."""
    write(tmp_path, {"one/x": b"1", "one/y": b"2", "two/x": b"3"})

    assert named("mine", tmp_path / "one", ["y", "x"], base) == {"y": b"2", "x": b"1"}
    with pytest.raises(ConfigError, match="lacks the file 'z'"):
        named("mine", tmp_path / "one", ["x", "z"], base)
    with pytest.raises(ConfigError, match="holds 'x' in 'one/' and in 'two/'"):
        named("mine", tmp_path, ["x"], base)
