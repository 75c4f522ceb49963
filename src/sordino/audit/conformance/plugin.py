"""Conformance as pytest tests, one for each check.

    @pytest.fixture
    def conformance_target():               # in a test module: its tests appear beside it
        return MyMechanism()

    pytest --sordino-target my_module:targets

Loaded by pytest in every environment that has Sordino: nothing is imported here that is not needed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sordino.audit.conformance.checks import Check

FIXTURE = "conformance_target"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--sordino-target`."""
    group = parser.getgroup("sordino")
    group.addoption(
        "--sordino-target",
        action="append",
        default=[],
        metavar="NAME|MODULE:FACTORY",
        help="Examine differentially private mechanisms: one test for each check (see sordino.audit.conformance).",
    )


def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> list[pytest.Item] | None:
    """A fixture of the agreed name brings one test a check."""
    if name != FIXTURE or not isinstance(collector, pytest.Module) or not callable(obj):
        return None
    from sordino.audit.conformance.checks import checks

    made = ((f"test_conformance[{one.id}]", functools.partial(_ask_fixture, one)) for one in checks())
    return [pytest.Function.from_parent(collector, name=title, callobj=call) for title, call in made]


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests for the targets of the command line."""
    for spec in config.getoption("--sordino-target"):
        items.extend(Targets.from_parent(session, name=spec).collect())


class Targets(pytest.Collector):
    """The targets behind a name of the command line."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each target and check."""
        from sordino.audit.conformance.checks import checks
        from sordino.audit.conformance.targets import load

        for name, target in load(self.name).items():
            for one in checks():
                yield Question.from_parent(self, name=f"{name}[{one.id}]", target=target, check=one, spec=self.name)


class Question(pytest.Item):
    """One check of one target."""

    def __init__(self, *, target: Any, check: Check, spec: str, **options: Any) -> None:
        super().__init__(**options)
        self.target, self.check, self.spec = target, check, spec

    def runtest(self) -> None:
        """Ask, and judge."""
        _judge(self.target, self.check, self.spec)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The evidence, without a traceback of ours."""
        if isinstance(excinfo.value, pytest.fail.Exception):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where it belongs."""
        return self.path, None, f"{self.spec}: {self.name}"


def _ask_fixture(check: Check, conformance_target: Any) -> None:
    _judge(conformance_target, check, "")


def _judge(target: Any, check: Check, spec: str) -> None:
    """Fail on a fault that the target's documentation does not disclose; skip where nothing could be asked."""
    __tracebackhide__ = True
    from sordino.audit.conformance.suite import answers
    from sordino.audit.conformance.verdicts import Fault, Result

    rows = answers(target, check, spec=spec)
    faults = [row for row in rows if row.fault is Fault.CLAIM]
    if faults:
        told = (f"{row.id} {row.check}: {row.result.value}: {row.evidence}\n\n{row.reproduction}" for row in faults)
        pytest.fail("\n".join(told), pytrace=False)
    if all(row.result is Result.NOT_APPLICABLE for row in rows):
        pytest.skip("; ".join(row.evidence for row in rows))
