"""Only named places may certify a bound, mint a reservation or look inside a private value."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sordino

SOURCE = Path(sordino.__file__).parent
ALLOWED = {
    "certify": ("local/clipping/", "federation/pipeline.py", "privacy/kernel.py"),
    "mint_reservation": ("ledger/",),
    "rehearsal": ("audit/sensor/", "audit/subjects/", "experiment/audits/"),
    "Permit": ("privacy/permits.py",),
    "SharePermit": ("privacy/permits.py",),
    "released_by": ("privacy/doors.py",),
    "shared_by": ("privacy/shares.py",),
}
PRIVATE_ATTRIBUTES = ("_Private__", "_BoundedSum__", "_Share__words")


def calls(tree: ast.AST, name: str) -> list[int]:
    """Lines that call a function, by its bare name or as an attribute."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [node.lineno for node in found if getattr(node.func, "id", getattr(node.func, "attr", "")) == name]


@pytest.mark.parametrize("name", ALLOWED)
def test_guarded_functions_are_called_in_named_files_only(name):
    """Elsewhere a call could type a sensitivity, or draw without a charge."""
    files = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    outside = {at: path for at, path in files.items() if not at.startswith(ALLOWED[name])}
    offending = {at: lines for at, path in outside.items() if (lines := calls(ast.parse(path.read_text()), name))}
    assert offending == {}


@pytest.mark.parametrize("line", ["certify(v, unit=u, l2=1)", "kernel.certify(v, unit=u, l2=1)"])
def test_the_scan_sees_a_call(line):
    """Negative control."""
    assert calls(ast.parse(line), "certify") == [1]


def test_nobody_reads_mangled_names():
    """`total._BoundedSum__vector` is the bypass that Python cannot stop."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    assert [at for at, text in texts.items() if any(name in text for name in PRIVATE_ATTRIBUTES)] == []
