"""Who waits for sites says for which: a run that is silent looks like one that hangs."""

from __future__ import annotations

import pytest

from sordino.core.errors import EngineError
from sordino.experiment.remote import roll
from sordino.ledger.keys import SigningKey


class Nobody:
    """A post where no site is."""

    def present(self):
        return []

    def ask(self, letters, timeout):
        return []


@pytest.mark.parametrize(("quiet", "told"), [(0.0, ["waiting for east, west"]), (60.0, [])])
def test_it_is_said_for_whom_a_run_waits_but_not_where_it_is_short(monkeypatch, quiet, told):
    monkeypatch.setattr(roll, "QUIET_S", quiet)
    said = []
    keys = {name: SigningKey.generate(name).public for name in ("east", "west")}
    asked = roll.Roll(Nobody(), keys, tell=said.append)
    with pytest.raises(EngineError, match="have not answered within"):
        asked.gather(keys, "run", "coordinator", wait=0.5, least=2)
    assert said == told
