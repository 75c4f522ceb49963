from __future__ import annotations

import pytest

from sordino.experiment.deploy import layout
from sordino.experiment.deploy.federation import Coordinator, Federation, Site


@pytest.fixture(scope="module")
def plan():
    sites = {"north": Site(8, 1e-5), "south": Site(2, 1e-6, data="/srv/heart.csv", isolation="subprocess")}
    return Federation(sites, "hearts", Coordinator("hub.example.org", port=19543, inside=19544, days=30))


@pytest.fixture
def folder(plan, tmp_path):
    layout.write(plan, tmp_path / "fed")
    return tmp_path / "fed"
