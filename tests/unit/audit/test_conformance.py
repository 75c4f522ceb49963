"""Our own mechanisms under the suite, Opacus's known faults, the command, the table and the pytest plugin."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from sordino.audit.conformance import Result, examine, load, table
from sordino.cli import main

pytest_plugins = ["pytester"]

HERE = str(Path(__file__).parent)
OURS = load("sordino")


@pytest.mark.parametrize("name", OURS)
def test_ours_passes_or_refuses(name):
    """Every row of every setting, stage, engine and rule; what is not asked says why."""
    rows = examine([OURS[name]], spec="sordino")

    odd = [row for row in rows if row.result not in (Result.PASS, Result.REFUSED, Result.NOT_APPLICABLE)]
    assert [(row.id, row.check, row.evidence) for row in odd] == []
    assert all(row.evidence for row in rows)
    assert sum(row.result is Result.PASS for row in rows) >= 5


def test_every_check_is_put_to_something_of_ours():
    """
    No question is N-A for all our targets: C15 has the summed records, C12 the ledger, C09 the adaptive stage.
    """
    offered = {
        "C09": "client at coordinator, adaptive_clip",
        "C10": "record at silo, auto",
        "C11": "client at silo",
        "C12": "ledger",
        "C15": "record at sum",
        "C18": "record at silo, auto",
        "C19": "client at coordinator, adaptive_clip",
        "C20": "ledger",
    }
    for check, name in offered.items():
        rows = examine([OURS[name]], only=[check])
        assert any(row.result is Result.PASS for row in rows), check


OPACUS = {
    ("flat clipping", "C04", "one NaN"): "FAIL",
    ("flat clipping", "C08", "seeding the ordinary generators"): "FAIL",
    ("flat clipping", "C17", "batch norm, trained"): "REFUSED",
    ("flat clipping", "C17", "batch norm without parameters"): "FAIL",
    ("flat clipping", "C17", "frozen batch norm left in train mode"): "FAIL",
    ("flat clipping", "C17", "a layer that uses the batch's mean"): "FAIL",
    ("flat clipping", "C17", "a contrastive loss within the batch"): "FAIL",
    ("flat clipping", "C17", "a token mean over the padded batch"): "FAIL",
    ("flat clipping", "C17", "one record with NaN"): "FAIL",
    ("flat clipping", "C17", "positions shared by the batch"): "REFUSED",
    ("flat clipping", "C01", "equal weights"): "PASS",
    ("flat clipping", "C10", "participation law"): "PASS",
    ("flat clipping", "C13", "canaries"): "PASS",
    ("flat clipping", "C16", "LoRA and the head in modules_to_save"): "PASS",
    ("flat clipping", "C16", "gradients of what is not trained"): "NOTE",
    ("flat clipping", "C17", "gradient checkpointing, reentrant"): "PASS",
    ("flat clipping", "C18", "a grid"): "FAIL",
    ("flat clipping", "C19", "a long update in float16 keeps its share"): "PASS",
    ("ghost clipping", "C19", "a long update in float16 keeps its share"): "FAIL",
    ("per-layer clipping", "C01", "equal weights"): "PASS",
    ("ghost clipping", "C01", "equal weights"): "PASS",
    ("ghost clipping", "C17", "one record of 1e30"): "FAIL",
    ("poisson_sampling=False", "C10", "participation law"): "FAIL",
    ("poisson_sampling=False", "C10", "batch-size law"): "FAIL",
    ("accountant rdp", "C12", "Poisson-sampled releases"): "PASS",
    ("accountant gdp", "C12", "Poisson-sampled releases"): "FAIL",
    ("accountant rdp", "C20", "a second run knows the first"): "FAIL",
    ("one engine for all rounds", "C20", "rounds add up"): "PASS",
    ("an engine for each round, as in Flower's Opacus example", "C20", "rounds add up"): "FAIL",
}
"""Measured before the suite existed; found here without being told."""


def test_the_known_faults_of_opacus_are_found():
    """
    And what it does well passes.
    """
    pytest.importorskip("opacus")
    pytest.importorskip("peft")
    opacus = load("opacus")
    found = {}
    for name in {key[0] for key in OPACUS}:
        rows = examine([opacus[name]], only={check for target, check, _ in OPACUS if target == name})
        found |= {(row.target, row.id, row.check.rpartition(": ")[2]): row.result.value for row in rows}

    assert {key: found[key] for key in OPACUS} == OPACUS


class TestCommand:
    @pytest.fixture(autouse=True)
    def own_module(self, monkeypatch):
        monkeypatch.syspath_prepend(HERE)

    def call(self, capsys, *arguments):
        code = 0
        try:
            main(["audit", "conformance", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    def test_rows_as_json(self, capsys):
        """
        Dated, with versions; each row has the documented keys, a fault its kind and its snippet.
        """
        code, out, _ = self.call(capsys, "--target", "own_mechanism:targets", "--only", "C01", "--json")
        made = json.loads(out)

        assert code == 5
        assert made["versions"]["numpy"]
        assert len(made["date"]) == len("2026-01-01")
        honest, broken = made["rows"]
        assert {"target", "id", "check", "result", "evidence"} <= honest.keys()
        assert (honest["result"], honest["kind"]) == ("PASS", None)
        assert (broken["result"], broken["kind"]) == ("FAIL", "violates the stated claim")
        assert "half the noise" in broken["reproduction"]

    def test_an_honest_one_exits_with_0_and_writes_a_page(self, capsys, tmp_path):
        """
        Text on stdout, a dated table in the file.
        """
        page = tmp_path / "conformance.md"
        code, out, _ = self.call(
            capsys, "--target", "own_mechanism:honest", "--only", "C01,C04", "--markdown", str(page)
        )

        assert code == 0
        assert "honest: 7 PASS" in out or "honest: 8 PASS" in out
        assert "| honest | PASS | PASS |" in page.read_text(encoding="utf-8")

    def test_other_frameworks_exit_with_0_unless_strict(self, capsys):
        """
        Their faults are recorded, not gating.
        """
        pytest.importorskip("opacus")
        arguments = ("--target", "opacus", "--only", "C12", "--name", "gdp")

        assert self.call(capsys, *arguments)[0] == 0
        assert self.call(capsys, *arguments, "--strict")[0] == 5

    @pytest.mark.parametrize("target", ["no_such_module:targets", "own_mechanism:nothing", "flowr", "own_mechanism:N"])
    def test_what_cannot_be_asked_is_one_line(self, capsys, target):
        """
        Exit code 2, no traceback.
        """
        code, _, err = self.call(capsys, "--target", target)

        assert code in (1, 2)
        assert len(err.strip().splitlines()) == 1

    def test_a_missing_framework_says_what_to_install(self, capsys, monkeypatch):
        """
        Exit code 2 and one line.
        """
        monkeypatch.setitem(sys.modules, "nvflare", None)
        monkeypatch.delitem(sys.modules, "sordino.audit.conformance.adapters.nvflare", raising=False)
        code, _, err = self.call(capsys, "--target", "nvflare")

        assert code == 2
        assert "pip install nvflare" in err
        assert len(err.strip().splitlines()) == 1


def test_the_page_keeps_the_kinds_of_fault_apart():
    """
    Each under its own heading, with the documentation's words where it discloses, and the note about upstream.
    """
    import own_mechanism as own

    rows = examine(
        [own.Weighted("weighted", discloses={"C02": "README, weights"}), own.HalfTheNoise("half")], only=["C01", "C02"]
    )
    page = table.markdown({"theirs": table.document(rows)}, {"absent": "not installed"})

    claims, defaults = page.index("violates the stated claim"), page.index("unsafe default")
    assert claims < page.index("half: noise multiplier 0.4") < defaults < page.index("README, weights")
    assert "Reported upstream: not yet" in page
    assert "Not asked: not installed" in page


class TestPlugin:
    @pytest.fixture
    def run(self, pytester, monkeypatch):
        """Runs pytest there as a user would: by the entry point, or where the installation is older, by name."""
        monkeypatch.syspath_prepend(HERE)
        monkeypatch.setenv("PYTHONPATH", HERE)
        known = {point.name for point in metadata.entry_points(group="pytest11")}
        extra = () if "sordino_conformance" in known else ("-p", "sordino.audit.conformance.plugin")
        return lambda *arguments: pytester.runpytest_subprocess("-q", *extra, *arguments)

    def test_a_fixture_brings_one_test_a_check(self, pytester, run):
        """
        C01 passes, what has no meaning is skipped; the broken one fails with its evidence.
        """
        pytester.makepyfile(
            test_mine="""
            import own_mechanism, pytest

            @pytest.fixture
            def conformance_target():
                return own_mechanism.Honest()

            def test_of_their_own():
                pass
            """,
            test_broken="""
            import own_mechanism, pytest

            @pytest.fixture
            def conformance_target():
                return own_mechanism.HalfTheNoise()
            """,
        )
        result = run("-k", "C01 or C09 or their_own")

        result.assert_outcomes(passed=2, failed=1, skipped=2)
        result.stdout.fnmatch_lines(["*noise multiplier 0.49* in force, 1 claimed*"])

    def test_targets_of_the_command_line(self, pytester, run):
        """
        One test for each target and check.
        """
        pytester.makepyfile(test_nothing="def test_nothing(): pass")
        result = run("--sordino-target", "own_mechanism:targets", "-k", "C01 or nothing")

        result.assert_outcomes(passed=2, failed=1)

    def test_other_peoples_runs_are_left_alone(self, pytester, run):
        """
        No heavy import, no more tests.
        """
        pytester.makepyfile(
            """
            import sys

            def test_nothing_heavy():
                assert not {"numpy", "torch", "scipy"} & set(sys.modules)
            """
        )
        run().assert_outcomes(passed=1)
