"""Units and compose file: written so that their own programs take them, and so that what ends is started again."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

UNITS = {
    "coordinator/sordino-coordinator.service",
    "sites/north/sordino-node.service",
    "sites/north/sordino-trainer.service",
    "sites/south/sordino-node.service",
}


def complaints(unit) -> str:
    """What systemd says against a unit; it ends with 0 even where it would leave out a line."""
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def test_these_are_all_the_units(folder):
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.service")} == UNITS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_has_nothing_against_the_units(folder):
    assert {name: complaints(folder / name) for name in UNITS} == dict.fromkeys(UNITS, "")
    broken = folder / "broken.service"
    broken.write_text((folder / min(UNITS)).read_text().replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in complaints(broken)


@pytest.mark.parametrize("name", sorted(UNITS))
def test_a_unit_is_started_again_however_it_ended_and_without_end(folder, name):
    lines = (folder / name).read_text().splitlines()
    assert {"Restart=always", "RestartSec=10", "StartLimitIntervalSec=0"} <= set(lines)
    assert lines.index("StartLimitIntervalSec=0") < lines.index("[Service]") < lines.index("Restart=always")


def test_containers_are_started_again_until_they_are_stopped(folder):
    services = json.loads((folder / "docker-compose.yml").read_text().partition("\n")[2])["services"]
    assert len(services) == 5
    assert {service["restart"] for service in services.values()} == {"unless-stopped"}


def compose() -> list[str]:
    """Whichever of the two programs is here."""
    for command in (["docker", "compose"], ["docker-compose"]):
        found = shutil.which(command[0])
        if found and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode:
            return command
    return []


def test_compose_takes_the_file(folder):
    command = compose()
    if not command:
        pytest.skip("there is neither docker compose nor docker-compose")
    file = folder / "docker-compose.yml"

    def code() -> int:
        asked = [*command, "-f", file, "config", "-q"]
        return subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode

    assert code() == 0
    file.write_text(file.read_text().replace('"restart"', '"restarts"'))
    assert code() != 0
