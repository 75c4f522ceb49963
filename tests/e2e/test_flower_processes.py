"""A federation of real processes on loopback: TLS, node keys, signed code, strangers, and nothing left behind."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from deployed import SORDINO, folders, up

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sordino.experiment.deploy import at_rest, bundle, checking, flower_code, layout, local, marks, signatures

pytestmark = pytest.mark.flower
SITES, EACH = ("north", "south"), 'epsilon = 8\ndelta = 1e-5\nisolation = "subprocess"\n'
UPDATE = np.random.default_rng(7).standard_normal(20_000)
APP = """
import json, time
import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client, server = ClientApp(), ServerApp()

@client.train()
def train(msg, ctx):
    update = np.random.default_rng(7).standard_normal(20_000) + msg.content["a"].to_numpy_ndarrays()[0][0]
    return Message(RecordDict({"a": ArrayRecord([update])}), reply_to=msg)

@server.main()
def main(grid, ctx):
    sent = RecordDict({"a": ArrayRecord([np.zeros(1)])})
    asked = [Message(sent, dst_node_id=node, message_type="train") for node in grid.get_node_ids()]
    got = grid.send_and_receive(asked, timeout=60)
    with open(ctx.run_config["experiment"], "w") as file:
        json.dump([value(one) for one in got], file)

def value(got):
    return float(got.content["a"].to_numpy_ndarrays()[0].sum()) if got.has_content() else got.error.reason
"""
CODE = bundle.packed(
    {
        "pyproject.toml": """
[project]
name = "federation"
version = "1.0.0"
description = "A try."
license = "Apache-2.0"
dependencies = ["flwr>=1.42"]
[tool.flwr.app]
publisher = "sordino"
[tool.flwr.app.components]
serverapp = "tiny:server"
clientapp = "tiny:client"
[tool.flwr.app.config]
experiment = ""
""",
        "tiny.py": APP,
    }
)


def nothing_is_left(fed: Path) -> None:
    assert marks.marked(fed) == {}
    assert not at_rest.files(database(fed))


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    made = folders(tmp_path_factory.mktemp("deploy"), SITES, EACH)
    with up(made, least=6) as running:  # nodes start further processes
        yield running
    nothing_is_left(running)


def test_one_interrupt_stops_everything(tmp_path):
    fed = folders(tmp_path, SITES, EACH)
    # Where the tests themselves run in the background, interrupts are ignored, and every child would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started_up = subprocess.Popen([*SORDINO, "deploy", "up", "--local", fed])
    signal.signal(signal.SIGINT, before)
    with started_up as up:
        end = time.monotonic() + 60
        while len(marks.marked(fed)) < 4:
            assert time.monotonic() < end
            time.sleep(0.1)
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 130
    nothing_is_left(fed)


def database(fed: Path) -> Path:
    room = fed / "coordinator"
    return at_rest.place(room, layout.read_coordinator(room).database)


def run(fed: Path, code: bytes, out: Path, signed: bytes = CODE) -> list:
    """A run as the coordinator starts one: in the database, then a process of its own on the inner port."""
    room = fed / "coordinator"
    mine = layout.read_coordinator(room)
    with flower_code.state(database(fed)) as opened:
        number = flower_code.stored_run(opened, code, signatures.read(room, signed), {"experiment": str(out)})
        token = flower_code.claim(opened, number)
    command = [Path(sys.executable).parent / "flwr-serverapp", "--runtime-api-address", f"127.0.0.1:{mine.inside}"]
    command += ["--root-certificates", room / "ca.pem", "--token", token]
    quiet = {"FLWR_HOME": str(out.parent / "home"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, timeout=120, check=False)
    assert out.exists(), done.stderr.decode()
    return json.loads(out.read_text(encoding="utf-8"))


def readable(folders: list[Path]) -> int:
    """How many pieces of the update stand in any file."""
    files = [path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()]
    pieces = [UPDATE[start : start + 16].tobytes() for start in range(0, len(UPDATE), 160)]
    return sum(any(piece in file for file in files) for piece in pieces)


def test_a_federation_that_runs_has_nothing_wrong(fed):
    local.sign_all(fed, CODE)
    assert checking.check(fed, code=CODE) == {"coordinator": [], "north": [], "south": []}
    status = local.status(fed)
    assert status.nodes == {"north": "online", "south": "online"}
    assert status.kept
    assert all(part["runs"] for part in status.to_plain()["processes"])


def test_a_run_of_signed_code_and_nothing_readable_after_it(fed, tmp_path):
    local.sign_all(fed, CODE)
    assert run(fed, CODE, tmp_path / "result.json") == pytest.approx([UPDATE.sum()] * 2)
    before = readable([fed, database(fed).parent])
    assert before > 0  # Flower leaves updates in its database's log: why there is a scrub
    subprocess.run([*SORDINO, "deploy", "scrub", fed / "coordinator"], check=True)
    assert readable([fed, database(fed).parent]) == 0


def test_nodes_run_no_code_that_nobody_signed(fed, tmp_path):
    changed = bundle.packed(
        {"pyproject.toml": _file(CODE, "pyproject.toml"), "tiny.py": APP.replace("rng(7)", "rng(8)")}
    )
    words = run(fed, changed, tmp_path / "result.json")
    assert len(words) == 2
    assert all("verif" in str(word).lower() for word in words)


def _file(code: bytes, name: str) -> str:
    import io
    import zipfile

    return zipfile.ZipFile(io.BytesIO(code)).read(name).decode()


def test_the_certificate_authority_s_file_opens_no_door(fed):
    """What a stranger can do who has the file that every site has: start code, add a node, read the docs? Nothing."""
    from flwr.proto.control_pb2 import ListRunsRequest, RegisterNodeRequest, StartRunRequest
    from flwr.proto.fab_pb2 import Fab
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

    mine = layout.read_coordinator(fed / "coordinator")
    start = StartRunRequest(fab=Fab(hash_str=bundle.digest(CODE), content=CODE), federation="@none/default")
    asked = {
        "/v1/control/start-run": start,
        "/v1/control/register-node": RegisterNodeRequest(public_key=b"x"),
        "/v1/control/list-runs": ListRunsRequest(),
        "/v1/fleet/../control/start-run": start,
        "/v1/fleet/%2e%2e/control/start-run": start,
        "//v1/control/start-run": start,
    }
    with flower_code.state(database(fed)) as opened:
        before = len(opened.get_run_info())
    headers = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE}
    with httpx.Client(verify=trusting(fed), headers=headers) as client:
        for port in (mine.port, mine.inside):
            for path, message in asked.items():
                url = httpx.URL(f"https://localhost:{port}", raw_path=path.encode())
                assert client.post(url, content=message.SerializeToString()).status_code == 404
            assert client.get(f"https://localhost:{port}/docs").status_code == 404
            assert client.get(f"https://localhost:{port}/health").status_code == 200
        task = AcquireTaskRequest(supported_task_types=["flwr-serverapp"]).SerializeToString()
        assert client.post(f"https://localhost:{mine.port}/v1/runtime/acquire-task", content=task).status_code == 404
        refused = client.post(f"https://localhost:{mine.inside}/v1/runtime/acquire-task", content=task)
        assert refused.status_code in {401, 403}
    with flower_code.state(database(fed)) as opened:
        assert len(opened.get_run_info()) == before


def trusting(fed: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(fed / "sites/north/ca.pem"))


def sign_of_life(fed: Path, site: str, key: ec.EllipticCurvePrivateKey) -> int:
    """The status of the answer to a node's sign of life, signed by a key."""
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

    with flower_code.state(database(fed)) as opened:
        number, _ = flower_code.nodes(opened)[site]
    moment, public = now().isoformat(), public_key_to_bytes(key.public_key())
    headers = {
        "content-type": PROTOBUF_MEDIA_TYPE,
        "accept": PROTOBUF_MEDIA_TYPE,
        "flwr-public-key": base64.b64encode(public).decode(),
        "flwr-signature": base64.b64encode(sign_message(key, moment.encode())).decode(),
        "flwr-timestamp": moment,
    }
    body = SendNodeHeartbeatRequest(node=Node(node_id=number), heartbeat_interval=30).SerializeToString()
    url = f"https://localhost:{layout.read_coordinator(fed / 'coordinator').port}/v1/fleet/send-node-heartbeat"
    with httpx.Client(verify=trusting(fed)) as client:
        return client.post(url, content=body, headers=headers).status_code


def test_only_a_site_s_own_node_speaks_for_it(fed):
    north, south = (
        serialization.load_ssh_private_key((fed / f"sites/{name}/node.key").read_bytes(), None)
        for name in ("north", "south")
    )
    assert sign_of_life(fed, "north", north) == 200
    assert sign_of_life(fed, "north", south) == 401
    assert sign_of_life(fed, "north", ec.generate_private_key(ec.SECP384R1())) == 401


def test_a_coordinator_that_was_killed_comes_back_with_the_same_nodes(fed, tmp_path):
    with flower_code.state(database(fed)) as opened:
        before = {name: number for name, (number, _) in flower_code.nodes(opened).items()}
    local.sign_all(fed, CODE)
    local.kill(fed, "coordinator")
    end = time.monotonic() + 90
    while time.monotonic() < end:
        try:
            words = run(fed, CODE, tmp_path / "result.json")
            break
        except (AssertionError, httpx.HTTPError):
            time.sleep(1)
    assert words == pytest.approx([UPDATE.sum()] * 2)
    with flower_code.state(database(fed)) as opened:
        assert {name: number for name, (number, _) in flower_code.nodes(opened).items()} == before
    assert local.status(fed).words["coordinator"] == "runs (start 2, after SIGKILL)"
    lines = (fed / "logs" / "keeper.log").read_text(encoding="utf-8").splitlines()
    told = [line.partition(" ")[2].partition(" ")[2] for line in lines]
    assert [words for words in told if words.startswith("coordinator")] == [
        "coordinator has ended (SIGKILL); starts again in 1 s",
        "coordinator: start 2",
    ]
