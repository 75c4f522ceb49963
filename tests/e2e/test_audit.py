"""`sordino audit RUN`, as a person calls it: claim, bounds and sentences; exit code 5 where a claim does not hold."""

from __future__ import annotations

import json

import pytest
from whole_runs import one_line, ran, sordino

from sordino.core.errors import ConfigError, VerificationError
from sordino.experiment.audits.auditing import choice, costs
from sordino.experiment.audits.opening import open_run
from sordino.privacy import noise

FEW = "sensor,one_run_curve,two_world,loss_threshold,exposure"


def test_a_sound_run_holds(heart, capsys):
    """Each grade beside the claim; what does not fit says why; the folder keeps it."""
    folder = ran(heart).folder
    code, out, _ = sordino(capsys, "audit", folder, "--attacks", FEW)
    assert code == 0, out
    words = (
        "claim: epsilon",
        "falsification",
        "conformance",
        "leakage",
        "not run, exposure",
        "nothing was found against",
    )
    for word in words:
        assert word in out, word
    found = json.loads((folder / "findings.json").read_text())
    assert found[0]["attack"] == "sensor"
    bounds = {f["attack"]: f["lower_bound"] for f in found}
    assert 0 < bounds["one_run_curve"] <= found[0]["promise"]["epsilon"]
    page = (folder / "findings.html").read_text()
    assert "<svg" in page, "the attack's curve under the ceiling"
    assert "http" not in page, "self-contained"


def test_half_the_noise_is_refuted(heart, capsys, monkeypatch):
    """The product itself is broken: the sensor and the claim test refute it, name causes, and the exit code says so."""
    folder = ran(heart).folder
    real = noise._normal
    monkeypatch.setattr(noise, "_normal", lambda stream, std, size: real(stream, std / 2, size))
    code, out, error = sordino(capsys, "audit", folder, "--attacks", "sensor,one_run_curve")
    assert (code, "do not use this model as private" in one_line(error)) == (5, True)
    assert "REFUTED by sensor, one_run_curve" in out
    assert "likely cause: less noise is drawn" in out
    code, out, _ = sordino(capsys, "audit", "--json", folder, "--attacks", "one_run_curve")
    assert code == 5
    (finding,) = json.loads(out)
    assert finding["verdict"] == "refuted"
    assert finding["lower_bound"] > finding["promise"]["epsilon"]


def test_a_run_without_privacy_leaks_and_contradicts_nothing(table, capsys):
    text = table.read_text(encoding="utf-8").replace(
        "noise_multiplier = 1.0\nsilos_per_person = 1", "non_private = true"
    )
    table.write_text(text, encoding="utf-8")
    folder = ran(table).folder
    code, out, _ = sordino(capsys, "audit", folder, "--attacks", "sensor,linear_inversion")
    assert code == 0
    assert "claim: none" in out
    assert "not run, sensor: Nothing is promised" in out
    assert "leaks, by linear_inversion; nothing was promised" in out


def test_what_cannot_be_audited_is_said_in_one_line(heart, capsys, tmp_path):
    code, _, error = sordino(capsys, "audit", tmp_path)
    assert (code, "holds no finished run" in one_line(error)) == (2, True)
    folder = ran(heart).folder
    for arguments, words in (
        (("--attacks", "lirra"), "did you mean 'lira'"),
        (("--attacks", "lira", "--set", "lira.mode=both"), "mode"),
        (("--attacks", "lira", "--set", "rmia.a=1"), "rmia"),
        (("--ledger", tmp_path / "none.db"), "--ledger"),
    ):
        code, _, error = sordino(capsys, "audit", folder, *arguments)
        assert code == 2
        assert words in one_line(error)
    assert not (folder / "findings.json").exists()


def test_what_ran_must_be_what_is_there(heart):
    """A run whose settings give another plan today is not what would be attacked."""
    folder = ran(heart).folder
    plan = json.loads((folder / "plan.json").read_text())
    plan["experiment"]["local"]["clip"] = 0.4
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(VerificationError, match="have changed since"):
        open_run(folder)


def test_long_attacks_are_left_out_unless_they_are_named(heart):
    audited = open_run(ran(heart).folder)
    known = {cost.attack: cost for cost in costs(audited, choice())}
    assert known["lira"].trainings == 72
    assert known["lira"].cpu_seconds > known["loss_threshold"].cpu_seconds > 0
    assert known["one_run"].trainings == 0
    assert not choice().named
    assert choice(["lira"]).named
    with pytest.raises(ConfigError, match="no key"):
        choice(["lira"], ["lira.shadows=3"])
