"""A federation of three small hospitals whose silos answer letters, for tests of what goes wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from machines import HOSPITALS, NAMES, Machines

from sordino.experiment.remote.books import RemoteBooks
from sordino.privacy.noise import SystemNoise


@pytest.fixture
def hospitals(tmp_path: Path, unwatched: None):
    """Twenty records in each, enrolled with 8, and nothing charged yet."""
    del unwatched
    rows = "".join(f"{i % 7 / 7:.3f},{i % 2},{NAMES[i % 3]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("a,ill,hospital\n" + rows)
    file = tmp_path / "faults.toml"
    file.write_text(HOSPITALS.format(path=tmp_path / "rows.csv"))
    return Machines.enrolled(file, NAMES, data={"path": str(tmp_path / "rows.csv")})


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often noise was drawn for each release of each silo."""
    drawn: Counter[tuple[str, str]] = Counter()
    sound = SystemNoise.normal

    def normal(self, permit, std, size):
        drawn[permit.txid, permit.stream] += 1
        return sound(self, permit, std, size)

    monkeypatch.setattr(SystemNoise, "normal", normal)
    return drawn


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Whose updates were counted, by round."""
    found: list[tuple[int, str]] = []
    read = RemoteBooks.read

    def reading(self, plan, client, answer, size):
        update = read(self, plan, client, answer, size)
        found.append((plan.round, self.terms.clients[client]))
        return update

    monkeypatch.setattr(RemoteBooks, "read", reading)
    return found
