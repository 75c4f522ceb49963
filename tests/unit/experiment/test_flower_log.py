"""What Flower logs of each step stays out of our output, also where other libraries have set up Python's log."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr")

STORY = """
import logging
logging.basicConfig(level=logging.INFO)
{hush}
import flwr.serverapp
log = logging.getLogger("flwr")
log.debug("a step")
log.info("another")
log.warning("a warning")
"""
OURS = "from sordino.experiment.flower.log import hush; hush()"
TOO_EARLY = 'logging.getLogger("flwr").setLevel(logging.WARNING)'


@pytest.mark.parametrize(("hush", "steps"), [(OURS, False), (TOO_EARLY, True)], ids=["ours", "before the import"])
def test_steps_are_not_printed_and_warnings_are(hush, steps):
    done = subprocess.run([sys.executable, "-c", STORY.format(hush=hush)], capture_output=True, text=True, check=True)
    assert ("a step" in done.stderr) is steps
    assert ("another" in done.stderr) is steps
    assert "a warning" in done.stderr
