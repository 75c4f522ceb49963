"""I15: a disk that is full, or cannot be written: the ledger refuses, and nothing was released.

A database that is locked stands in the contracts (`TestFaults`), for both databases.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from sordino.core.errors import PrivacyError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import Account, Ledger, verify
from sordino.privacy import events
from sordino.privacy.permits import Line

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

KEY = events.key(events.gaussian(40.0))
SIZE = 700_000
PAYLOAD = 30_000
NOBODY = 65534


def opened(path):
    ledger = Ledger(path)
    ledger.open_account(Account("silo", Unit.RECORD, Adjacency.ADD_REMOVE, 8.0, 1e-5, "gdp"))
    ledger.open_run("run")
    return ledger


def release(ledger, number):
    lines = [Line("silo", Unit.RECORD, KEY, 1)]
    ledger.commit(ledger.reserve(f"t{number}", "run", number, "train", lines), os.urandom(PAYLOAD))


def releases_until_refused(path, most=60):
    """How many were released, and what the refusal said. Afterwards the ledger still answers."""
    with closing(opened(path)) as ledger:
        for number in range(most):
            try:
                release(ledger, number)
            except PrivacyError as error:
                committed = sum(charge.state == "committed" for charge in ledger.charges("run"))
                assert ledger.artefact(f"t{number}") is None
                return number, committed, str(error)
    return most, most, "nothing was refused"


def in_child(function, *arguments):
    """What a function returns in a process of its own, whose limits and user do not matter afterwards."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def work():
        try:
            theirs.send(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - the parent must hear of it
            theirs.send(repr(error))
        theirs.close()
        os._exit(0)

    process = context.Process(target=work)
    process.start()
    answer = ours.recv() if ours.poll(60) else "no answer"
    process.join(60)
    ours.close()
    theirs.close()
    return answer


@pytest.fixture
def tiny():
    """A disk of less than a megabyte."""
    folder = Path(tempfile.mkdtemp())
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("this machine lets us mount no disk; a limit on the size of files stands in, in the next test")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


class TestFullDisk:
    def test_a_full_disk_refuses_and_an_emptied_one_goes_on(self, tiny):
        """Every release before it is committed, the one that does not fit is not, and the books are true."""
        number, committed, said = releases_until_refused(tiny / "ledger.db")
        assert number == committed > 0
        assert "nothing was released" in said
        assert "\n" not in said
        assert verify(tiny / "ledger.db").problems == ()
        subprocess.run(["mount", "-o", f"remount,size={10 * SIZE}", str(tiny)], check=True)
        with closing(Ledger(tiny / "ledger.db")) as ledger:
            ledger.open_run("run")
            ledger.forfeit_open("run")
            release(ledger, 10_000)
            states = [charge.state for charge in ledger.charges("run")]
        assert states.count("committed") == committed + 1
        assert verify(tiny / "ledger.db").problems == ()

    def test_a_file_that_may_not_grow_refuses(self, tmp_path):
        """The same by a limit on the process, where no disk can be mounted."""

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, SIZE))
            return releases_until_refused(tmp_path / "ledger.db")

        number, committed, said = in_child(limited)
        assert number == committed > 0
        assert "nothing was released" in said
        assert verify(tmp_path / "ledger.db").problems == ()

    def test_a_ledger_is_not_half_made(self, tmp_path):
        """Where not even the empty tables fit, nothing is left that a later start would take for a ledger."""

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
            try:
                Ledger(tmp_path / "ledger.db")
            except PrivacyError as error:
                return str(error)
            return "it was made"

        assert "nothing was released" in in_child(limited)
        opened(tmp_path / "ledger.db").close()
        assert verify(tmp_path / "ledger.db").problems == ()


class TestReadOnlyDisk:
    @pytest.fixture
    def closed(self):
        """A ledger that its present user may read and not write."""
        folder = Path(tempfile.mkdtemp())
        opened(folder / "ledger.db").close()
        (folder / "ledger.db").chmod(0o444)
        folder.chmod(0o555)
        yield folder / "ledger.db"
        folder.chmod(0o700)
        shutil.rmtree(folder)

    @staticmethod
    def as_anybody(function):
        """As a user for whom permissions hold."""

        def work():
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            return function()

        return in_child(work)

    def test_it_can_be_read(self, closed):
        def read():
            with closing(Ledger(closed, read_only=True)) as ledger:
                return ledger.runs(), verify(closed).problems

        assert self.as_anybody(read) == (["run"], ())

    def test_writing_refuses(self, closed):
        def write():
            try:
                with closing(Ledger(closed)) as ledger:
                    ledger.open_run("more")
            except PrivacyError as error:
                return str(error)
            return "it was written"

        assert "nothing was released" in self.as_anybody(write)
        assert verify(closed).counts["run-opened"] == 1
