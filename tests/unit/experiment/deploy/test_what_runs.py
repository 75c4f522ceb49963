"""What a folder starts: the flags, the variables, and which of Flower's own paths each port lets through."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fastapi.routing import APIRoute, iter_route_contexts

from sordino.experiment.deploy import flower_code, layout, processes
from sordino.experiment.deploy.guard import Guard, cleaned


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    app = flower_code.application(tmp_path_factory.mktemp("flower") / "superlink.db", b"secret")
    yield app
    opened = app.state.linkstate_factory.state()
    for part in (opened, opened.object_store):
        part._engine.dispose()


def reached(app, room: str) -> set[str]:
    guard = Guard(app, room)
    routes = {
        getattr(one.route, "path", ""): getattr(one.route, "methods", set()) for one in iter_route_contexts(app.routes)
    }
    asked = [
        {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": []}
        for path, methods in routes.items()
        for method in methods
    ]
    assert len(asked) > 60
    return {scope["path"] for scope in asked if guard.refusal(scope) == 0}


def test_sites_reach_the_fleet_and_nothing_else_of_flower(app):
    found = reached(app, "fleet")
    assert {path for path in found if not path.startswith("/v1/fleet/")} == {"/health"}
    assert {"/v1/fleet/pull-messages", "/v1/fleet/push-object", "/v1/fleet/send-node-heartbeat"} <= found


def test_the_inner_port_reaches_what_asks_for_a_token_or_the_secret_and_nothing_else(app):
    found = reached(app, "runtime")
    assert {path for path in found if not path.startswith("/v1/runtime/")} == {"/health"}
    # `responses` asks for its token in a header that the guard drops, so nobody has it there.
    assert (b"authorization", b"x") not in cleaned({"headers": [(b"authorization", b"x")]})["headers"]
    for one in iter_route_contexts(app.routes):
        if isinstance(one.route, APIRoute) and one.route.path in found - {"/health", "/v1/runtime/responses"}:
            asked = {dependency.call.__class__.__name__ for dependency in one.route.dependant.dependencies}
            named = {getattr(dependency.call, "__name__", "") for dependency in one.route.dependant.dependencies}
            assert "get_task" in named or "SuperExecAuthDependency" in asked, one.route.path


def test_flower_s_server_asks_nodes_for_their_keys(app):
    assert app.state.enable_supernode_auth is True
    assert app.state.superexec_auth_secret == b"secret"
    assert app.state.superlink_lifespan is None  # it starts no process and no other server


def test_flower_reports_nothing_and_installs_nothing_unless_told(folder):
    quiet = processes.environment(folder, telemetry=False, given={"PATH": "/bin"})
    assert quiet == {
        "PATH": f"{Path(sys.executable).parent}:/bin",
        "FLWR_HOME": str(folder / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "no_proxy": "localhost,127.0.0.1",
        "NO_PROXY": "localhost,127.0.0.1",
    }
    told = processes.environment(
        folder, telemetry=True, given={"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": "/elsewhere"}
    )
    behind = processes.environment(folder, telemetry=False, given={"NO_PROXY": "a.example", "HTTPS_PROXY": "http://p"})
    assert (behind["no_proxy"], behind["HTTPS_PROXY"]) == ("a.example,localhost,127.0.0.1", "http://p")
    assert (told["FLWR_TELEMETRY_ENABLED"], told["FLWR_HOME"]) == ("1", "/elsewhere")


def arguments(at) -> list[str]:
    """A node's command without the program."""
    command = processes.node_command(at, layout.read_site(at))
    return command[command.index("--superlink") :]


def test_a_node_s_command(folder):
    at = folder / "sites/north"
    command = arguments(at)
    flags = dict(zip(command[::2], command[1::2], strict=True))
    assert flags == {
        "--superlink": "hub.example.org:19543",
        "--root-certificates": str(at / "ca.pem"),
        "--auth-supernode-private-key": str(at / "node.key"),
        "--trusted-entities": str(at / "trusted.yaml"),
        "--host": "127.0.0.1",
        "--port": "9501",
        "--isolation": "process",
        "--superexec-auth-secret-file": str(at / "superexec.secret"),
    }
    assert "--insecure" not in command
    south = folder / "sites/south"
    assert "--superexec-auth-secret-file" not in arguments(south)
    elsewhere = processes.node_command(at, layout.read_site(at), superlink="coordinator:1")
    assert elsewhere[elsewhere.index("--superlink") + 1] == "coordinator:1"


def test_flower_takes_every_flag_of_a_node_s_command(folder, monkeypatch):
    from flwr.supernode.cli.flower_supernode import _parse_supernode_lifespan_config

    at = folder / "sites/north"
    monkeypatch.setattr("sys.argv", ["flower-supernode", *arguments(at)])
    config = _parse_supernode_lifespan_config()
    assert config.server_address == "hub.example.org:19543"
    assert config.authentication_keys is not None
    assert set(config.trusted_entities) == {"north"}
    assert config.superexec_auth_secret == (at / "superexec.secret").read_bytes()
    assert not config.insecure


def test_a_service_manager_s_copy_of_a_key_is_taken_first(folder, tmp_path, monkeypatch):
    at = folder / "sites/north"
    assert processes.secret_file(at, "node.key") == at / "node.key"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert processes.secret_file(at, "node.key") == at / "node.key"
    (tmp_path / "node.key").touch()
    assert processes.secret_file(at, "node.key") == tmp_path / "node.key"
