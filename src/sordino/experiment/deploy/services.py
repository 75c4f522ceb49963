"""What starts a folder's processes on its machine: a script, systemd units, and a compose file for containers.

All of them call `sordino deploy serve FOLDER`; what that starts stands in `processes.py` only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sordino.experiment.deploy.federation import Coordinator

OF_THE_NODE = ("site.toml", "ca.pem", "node.key", "trusted.yaml", "superexec.secret")
"""What a site's node reads. The silo's key, its ledger and the data are its trainer's."""

_START = """\
#!/bin/sh
# Starts what runs in this folder and stays in front; a signal ends it, and it ends with the first of its parts.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
{commands}"""

# `always`: a node that Flower's server turned away ends with exit code 0. And without end: one that was killed is
# refused for up to 60 s, while the server takes its last session for alive.
_UNIT = """\
# Copy to /etc/systemd/system, put the folder at {home}, and change paths and users where yours differ.
[Unit]
Description={title}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
{start}
Restart=always
RestartSec=10
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices={no_devices}
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
UMask=0077
{more}

[Install]
WantedBy=multi-user.target
"""


def write_coordinator(folder: Path) -> None:
    """The coordinator's script and unit."""
    _script(folder, 'exec sordino deploy serve "$here"\n')
    home = "/etc/sordino/coordinator"
    text = _UNIT.format(
        home=home,
        title="Sordino coordinator",
        user="sordino-coordinator",
        start=f"ExecStart=/usr/bin/env sordino deploy serve {home}",
        no_devices="yes",
        more=f"ReadWritePaths={home} /dev/shm",
    )
    (folder / "sordino-coordinator.service").write_text(text, encoding="utf-8")


def write_site(folder: Path, name: str, *, trainer: bool) -> None:
    """A site's script and units.

    Args:
        folder: The site's.
        name: The site's.
        trainer: Whether a trainer of its own runs beside the node.
    """
    both = "node= trainer=\ntrap 'kill $node $trainer 2>/dev/null || :; wait' EXIT\ntrap 'exit 143' INT TERM\n"
    both += 'sordino silo serve "$here" &\ntrainer=$!\nsordino deploy serve "$here" &\nnode=$!\n'
    both += 'while kill -0 "$node" && kill -0 "$trainer"; do sleep 1 & wait $!; done 2>/dev/null\nexit 1\n'
    _script(folder, both if trainer else 'exec sordino deploy serve "$here"\n')
    home = f"/etc/sordino/{name}"
    # The node talks to the outside and never sees the data, the ledger or the silo's key: another user's, mode 0600.
    keys = "".join(f"LoadCredential={file}:{home}/{file}\n" for file in ("node.key", "superexec.secret"))
    node = _UNIT.format(
        home=home,
        title=f"Sordino node of {name}",
        user="sordino-node",
        start=f"{keys}StateDirectory=sordino-node-{name}\nEnvironment=FLWR_HOME=/var/lib/sordino-node-{name}\n"
        f"ExecStart=/usr/bin/env sordino deploy serve {home}",
        no_devices="yes",
        more=f"InaccessiblePaths=-{home}/ledger.db -{home}/key.pem",
    )
    (folder / "sordino-node.service").write_text(node, encoding="utf-8")
    if trainer:
        text = _UNIT.format(
            home=home,
            title=f"Sordino trainer of {name}",
            user="sordino-trainer",
            start=f"ExecStart=/usr/bin/env sordino silo serve {home}",
            no_devices="no",  # it may train on an accelerator
            more=f"ReadWritePaths={home}\nIPAddressDeny=any\nIPAddressAllow=localhost",
        )
        (folder / "sordino-trainer.service").write_text(text, encoding="utf-8")


def _script(folder: Path, commands: str) -> None:
    path = folder / "start.sh"
    path.write_text(_START.format(commands=commands), encoding="utf-8")
    path.chmod(0o755)


def write_compose(out: Path, where: Coordinator, sites: Sequence[str]) -> None:
    """A compose file that runs the whole federation in containers; JSON is YAML too.

    A site's node and trainer share one network of their own, so that their port stays on loopback. The node, which
    talks to the outside, gets no more of the site's folder than it reads.
    """
    image = "${SORDINO_IMAGE:-sordino}"
    services: dict[str, object] = {
        "coordinator": {
            "image": image,
            "command": ["sordino", "deploy", "serve", "/federation", "--listen", "0.0.0.0"],  # noqa: S104 - in a container
            "volumes": ["./coordinator:/federation"],
            "ports": [f"{where.port}:{where.port}"],
            "shm_size": "2gb",
            "restart": "unless-stopped",
        }
    }
    for name in sites:
        site = {"image": image, "restart": "unless-stopped"}
        superlink = f"coordinator:{where.port}"
        services[f"{name}-node"] = {
            **site,
            "volumes": [f"./sites/{name}/{file}:/site/{file}:ro" for file in OF_THE_NODE],
            "command": ["sordino", "deploy", "serve", "/site", "--superlink", superlink],
            "depends_on": ["coordinator"],
        }
        services[f"{name}-trainer"] = {
            **site,
            "volumes": [f"./sites/{name}:/site"],
            "command": ["sordino", "silo", "serve", "/site"],
            "network_mode": f"service:{name}-node",
            "depends_on": [f"{name}-node"],
        }
    head = "# Set SORDINO_IMAGE to an image that has `sordino[flower]`; give each trainer a volume with its data.\n"
    text = json.dumps({"services": services}, indent=2)
    (out / "docker-compose.yml").write_text(head + text + "\n", encoding="utf-8")
