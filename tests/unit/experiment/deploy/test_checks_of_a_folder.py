"""`sordino deploy check`: each thing that can be wrong is said in words, and nothing else is."""

from __future__ import annotations

import datetime as dt
import email.utils
import http.server
import shutil
import socket
import ssl
import threading
import time

import pytest

from sordino.core.errors import ConfigError, VerificationError
from sordino.experiment.deploy import certificates, checking, layout, local
from sordino.experiment.deploy.federation import Coordinator, Federation, Site
from sordino.ledger.keys import SigningKey

pytest.importorskip("flwr")
CODE = b"some code"
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class _Health(http.server.BaseHTTPRequestHandler):
    late_s = 0.0

    def do_GET(self):
        self.send_response_only(200)
        self.send_header("Date", email.utils.formatdate(time.time() + self.late_s, usegmt=True))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture
def fed(tmp_path, port):
    plan = Federation({"north": Site(8, 1e-5)}, coordinator=Coordinator(port=port, inside=port + 1))
    layout.write(plan, tmp_path / "fed")
    local.sign_all(tmp_path / "fed", CODE)
    return tmp_path / "fed"


@pytest.fixture
def running(fed, port):
    server = http.server.HTTPServer(("127.0.0.1", port), _Health)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(fed / "coordinator/server.pem", fed / "coordinator/server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def found(folder):
    return "\n".join(line for lines in checking.check(folder, code=CODE).values() for line in lines)


@pytest.mark.usefixtures("running")
def test_nothing_is_wrong_with_a_new_federation_that_runs(fed):
    assert checking.check(fed, code=CODE) == {"coordinator": [], "north": []}
    assert checking.check(fed / "sites/north", code=CODE) == {"north": []}


def test_a_coordinator_that_does_not_answer_is_the_only_thing_wrong_before_it_starts(fed):
    problems = checking.check(fed, code=CODE)
    assert problems["coordinator"] == []
    assert len(problems["north"]) == 1
    assert "cannot be reached" in problems["north"][0]


def swap(fed, name):
    layout.write(Federation({"north": Site(8, 1e-5)}), fed.parent / "other")
    shutil.copyfile(fed.parent / "other" / name, fed / name)


DEFECTS = {
    "server.key can be read by others": (lambda f: (f / "coordinator/server.key").chmod(0o644), "chmod 600 server.key"),
    "node.key can be read by others": (lambda f: (f / "sites/north/node.key").chmod(0o640), "chmod 600 node.key"),
    "ca.key can be read by others": (lambda f: (f / "ca.key").chmod(0o644), "chmod 600 ca.key"),
    "no certificate": (lambda f: (f / "coordinator/server.pem").unlink(), "server.pem"),
    "a certificate of another federation": (lambda f: swap(f, "coordinator/server.pem"), "not by the authority"),
    "a key of another certificate": (lambda f: swap(f, "coordinator/server.key"), "not for the key"),
    "another node's key": (lambda f: swap(f, "sites/north/node.key"), "does not belong to node.pub"),
    "another node's registration": (lambda f: swap(f, "coordinator/sites/north.pub"), "not registered"),
    "no registration": (lambda f: (f / "coordinator/sites/north.pub").unlink(), "no node is let in"),
    "another authority at the site": (lambda f: swap(f, "sites/north/ca.pem"), "another authority"),
    "another coordinator's signing key": (lambda f: swap(f, "coordinator/coordinator.pem"), "gets no grant"),
    "no ledger": (lambda f: (f / "sites/north/ledger.db").unlink(), "no longer known"),
    "a ledger that is none": (lambda f: (f / "sites/north/ledger.db").write_bytes(b"x" * 200), "ledger"),
    "rules that are none": (lambda f: (f / "sites/north/silo.toml").write_text("colour = 1"), "no key 'colour'"),
    "no secret": (lambda f: (f / "sites/north/superexec.secret").unlink(), "superexec.secret: is missing"),
    "no signature": (lambda f: (f / "coordinator/signatures/north.json").unlink(), "nobody has signed"),
    "data that is not there": (
        lambda f: (f / "sites/north/site.toml").write_text(
            (f / "sites/north/site.toml").read_text().replace('data = ""', 'data = "/no/such.csv"')
        ),
        "/no/such.csv is not there",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_said(fed, defect):
    break_it, words = DEFECTS[defect]
    break_it(fed)
    assert words in found(fed)


def test_a_signature_by_somebody_whom_the_site_does_not_trust_is_said(fed):
    from sordino.experiment.deploy import signatures

    signed = signatures.sign(SigningKey.generate("mallory"), CODE)
    (fed / "coordinator/signatures/north.json").write_text(signed.json(), encoding="utf-8")
    assert "nobody whom it trusts has signed" in found(fed)


def test_an_expired_certificate_is_said(fed):
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=400)
    with pytest.raises(VerificationError, match="has expired on"):
        certificates.check_server(fed / "coordinator", "localhost", now=later)
    with pytest.raises(VerificationError, match="does not hold yet"):
        certificates.check_server(fed / "coordinator", "localhost", now=later - dt.timedelta(days=4000))
    with pytest.raises(VerificationError, match="does not name this host"):
        certificates.check_server(fed / "coordinator", "hub.example.org")


def test_a_clock_that_differs_is_said(fed, running, monkeypatch):
    monkeypatch.setattr(_Health, "late_s", 299.0)
    assert "clock" not in found(fed)
    monkeypatch.setattr(_Health, "late_s", -400.0)
    assert "clock: differs by" in found(fed)
    assert running


@pytest.mark.usefixtures("running")
def test_a_server_of_another_authority_is_said(fed):
    swap(fed, "sites/north/ca.pem")
    assert "not the one expected" in found(fed / "sites/north")


def test_a_port_that_another_program_has_is_said(fed, port):
    with socket.create_server(("127.0.0.1", port + 1)):
        assert f"port {port + 1}: is taken" in found(fed)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no folder of a federation"):
        checking.check(tmp_path)
