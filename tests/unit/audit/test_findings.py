"""A finding says no more than its grade allows, and a page that may be passed on holds nothing private."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sordino.audit.findings import (
    Figure,
    Finding,
    Grade,
    Picture,
    Verdict,
    by_chance,
    graded,
    skipped,
    to_plain,
    withheld,
)
from sordino.audit.page import page
from sordino.audit.promise import Promise
from sordino.core.errors import VerificationError
from sordino.core.types import Adjacency
from sordino.experiment.audits.auditing import confirmed, write
from sordino.experiment.folder import RunFolder
from sordino.privacy import events

PROMISE = Promise.declared([(events.gaussian(1.0), 1)], 1e-5, by="a test")
LOCAL = Finding(
    attack="dlg",
    grade=Grade.LEAKAGE,
    verdict=Verdict.LEAKS,
    says="It rebuilds 17 of 23 patients.",
    does_not_show="More.",
    promise=PROMISE,
    confidence=0.95,
    figures={"psnr run": Figure(41.5)},
    curves={"roc": {"fpr": [0.0, 1.0], "tpr": [0.0, 1.0]}},
    pictures=(Picture("dlg.png", "patients", b"\x89PNG of a patient"),),
    local=True,
)
PUBLIC = replace(
    LOCAL, attack="one_run", says="Canaries.", local=False, pictures=(), figures={"canaries": Figure(200.0)}
)


def test_leakage_never_speaks_of_epsilon() -> None:
    """A refutation is another kind of statement, whoever makes it."""
    for changes in ({"verdict": Verdict.REFUTED}, {"lower_bound": 1.0}):
        with pytest.raises(VerificationError, match="leakage says nothing about"):
            replace(LOCAL, **changes)
    assert replace(LOCAL, verdict=Verdict.REFUTED, grade=graded(Verdict.REFUTED)).grade is Grade.FALSIFICATION


def test_what_is_withheld_is_the_same_whatever_was_found() -> None:
    """Verdict, grade, causes and time are computed from private records as much as the figures are."""
    refuted = replace(
        LOCAL,
        verdict=Verdict.REFUTED,
        grade=Grade.FALSIFICATION,
        causes=("no noise",),
        lower_bound=9.0,
        cpu_seconds=7.0,
    )
    held = replace(LOCAL, verdict=Verdict.HOLDS, says="It rebuilds nobody.", figures={}, pictures=())
    assert to_plain(withheld(LOCAL)) == to_plain(withheld(refuted)) == to_plain(withheld(held))
    assert withheld(LOCAL).verdict is Verdict.WITHHELD


def test_local_findings_lie_apart(tmp_path: Path) -> None:
    """Whoever sends findings.html and findings.json sends no figure and no picture of a private record."""
    audited = SimpleNamespace(
        folder=RunFolder(tmp_path),
        plan=SimpleNamespace(experiment=SimpleNamespace(name="ward"), digest="0" * 64),
        promise=PROMISE,
    )
    write(audited, [LOCAL, PUBLIC])  # type: ignore[arg-type]
    apart = tmp_path / "findings" / "local"
    for name in ("findings.json", "findings.html"):
        sent, kept = (tmp_path / name).read_text(), (apart / name).read_text()
        assert "17 of 23" not in sent
        assert "41.5" not in sent
        assert "data:image" not in sent
        assert "17 of 23" in kept
        assert "Canaries." in sent
    assert (apart / "dlg.png").exists()
    assert "LOCAL: this page" in (apart / "findings.html").read_text()
    write(audited, [PUBLIC])  # type: ignore[arg-type]
    assert not apart.exists(), "what an earlier audit left would not be that of this one"


def test_a_page_of_canaries_may_be_passed_on() -> None:
    assert "LOCAL" not in page("an audit", PROMISE, [PUBLIC, withheld(LOCAL)])


def test_many_tests_are_many_chances_to_be_wrong() -> None:
    """Only what can contradict a promise counts: not what was skipped, nor what has nothing to contradict."""
    nothing = replace(PUBLIC, promise=None)
    found = [PUBLIC, PUBLIC, nothing, skipped("lira", Grade.LEAKAGE, "does not fit.")]
    assert by_chance(found) == (2, pytest.approx(2 * 0.05**2))
    assert "2 tests at their own confidence" in page("an audit", PROMISE, found)


def test_a_refutation_stands_only_if_it_is_repeated() -> None:
    """One test in twenty refutes a sound run; it hardly does so twice."""
    refuted = replace(PUBLIC, verdict=Verdict.REFUTED, grade=Grade.FALSIFICATION, causes=("less noise",))
    again = confirmed(refuted, refuted)
    assert again.verdict is Verdict.REFUTED
    assert "refutes it too" in again.says
    once = confirmed(refuted, PUBLIC)
    assert once.verdict is PUBLIC.verdict is not Verdict.REFUTED
    assert "A first attempt" in once.says


def test_a_changed_unit_is_promised_less() -> None:
    """Two clip norms apart; where a change is what was promised, it stays."""
    changed = PROMISE.when_changed()
    twice = Promise.declared([(events.gaussian(0.5), 1)], 1e-5, by="a test")
    assert changed.adjacency is Adjacency.REPLACE_ONE
    assert changed.epsilon == pytest.approx(twice.epsilon, rel=1e-3)
    assert changed.when_changed() is changed


def test_plain_findings_name_local_pictures_where_they_lie() -> None:
    assert to_plain(LOCAL)["pictures"][0]["file"] == "findings/local/dlg.png"
