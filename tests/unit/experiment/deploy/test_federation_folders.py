from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from sordino.core.errors import ConfigError, VerificationError
from sordino.experiment.deploy import certificates, checking, federation, layout, services
from sordino.experiment.deploy.federation import Coordinator, Federation, Site
from sordino.experiment.site import sealing
from sordino.federation.secure.homomorphic import Key
from sordino.ledger.keys import SigningKey
from sordino.ledger.silo import open_silo

PRIVATE = {"server.key", "coordinator.pem", "node.key", "key.pem", "superexec.secret", "ca.key"}


def test_each_private_key_is_in_one_place_and_its_owner_s_only(folder):
    found = [path for path in folder.rglob("*") if path.name in PRIVATE]
    assert len(found) == 3 + 2 * 3
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in found)
    contents = [path.read_bytes() for path in found]
    assert len(set(contents)) == len(contents)
    public = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path not in found]
    assert not any(secret in text for secret in contents for text in public)
    assert not any(b"PRIVATE KEY" in text for text in public)


def test_a_ledger_is_its_owner_s_only(folder):
    assert (folder / "sites/north/ledger.db").stat().st_mode & 0o777 == 0o600


def test_a_site_s_folder_works_wherever_it_is_carried(folder, tmp_path):
    moved = Path(shutil.move(folder / "sites/south", tmp_path / "elsewhere"))
    shutil.rmtree(folder)
    with open_silo(moved) as silo:
        assert silo.name == "south"
        assert silo.ledger.balance("south").epsilon_limit == 2
    site = layout.read_site(moved)
    assert (site.superlink, site.data, site.isolation) == ("hub.example.org:19543", "/srv/heart.csv", "subprocess")
    certificates.check_node_key(moved)


def test_the_silo_grants_to_this_coordinator_only(folder):
    key = SigningKey.load(folder / "coordinator/coordinator.pem").public
    for at in layout.site_folders(folder).values():
        with open_silo(at) as silo:
            assert silo.rules.coordinator_keys == [key]


def test_the_coordinator_knows_each_site_s_node(folder):
    for name, at in layout.site_folders(folder).items():
        private = serialization.load_ssh_private_key((at / "node.key").read_bytes(), None)
        registered = serialization.load_ssh_public_key((folder / f"coordinator/sites/{name}.pub").read_bytes())
        assert private.public_key() == registered
        assert private.curve.name == "secp384r1"


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    two = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(10):
        for side in (one, two):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert done == {one, two}


def contexts(folder: Path, authority: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "coordinator/server.pem", folder / "coordinator/server.key")
    client = ssl.create_default_context(cafile=str(authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    return server, client


@pytest.mark.parametrize("host", ["hub.example.org", "localhost", "127.0.0.1", "coordinator"])
def test_sites_accept_the_server_by_each_of_its_names(folder, host):
    handshake(*contexts(folder, folder / "sites/north/ca.pem"), host)


def test_sites_refuse_another_name_and_another_authority(folder, plan, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"evil\.example\.org"):
        handshake(*contexts(folder, folder / "sites/north/ca.pem"), "evil.example.org")
    layout.write(plan, tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(*contexts(folder, tmp_path / "other/sites/north/ca.pem"), "localhost")


def test_a_renewed_certificate_is_accepted_by_the_same_sites(folder):
    before = (folder / "coordinator/server.key").read_bytes()
    layout.renew(folder, 700)
    assert (folder / "coordinator/server.key").read_bytes() != before
    assert (folder / "coordinator/server.key").stat().st_mode & 0o777 == 0o600
    in_a_year = dt.datetime.now(dt.UTC) + dt.timedelta(days=365)
    certificates.check_server(folder / "coordinator", "hub.example.org", now=in_a_year)
    handshake(*contexts(folder, folder / "sites/north/ca.pem"), "hub.example.org")
    (folder / "ca.key").unlink()
    with pytest.raises(VerificationError, match=r"ca\.key"):
        layout.renew(folder, 700)


def test_nothing_is_written_where_something_is(folder, plan):
    before = (folder / "ca.key").read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        layout.write(plan, folder)
    assert (folder / "ca.key").read_bytes() == before


def test_nothing_is_left_of_a_start_that_failed(plan, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(services, "write_compose", full)
    with pytest.raises(OSError, match="No space"):
        layout.write(plan, tmp_path / "fed")
    assert list(tmp_path.iterdir()) == []


def test_a_federation_reads_back_as_it_was_written(folder, plan):
    assert federation.read(folder / federation.FILE) == plan
    mine = layout.read_coordinator(folder / "coordinator")
    assert (mine.host, mine.port, mine.listen) == ("hub.example.org", 19543, "0.0.0.0")  # noqa: S104


def test_a_site_gets_a_port_that_no_other_site_has():
    sites = {"a": Site(1, 1e-5, port=9501), "b": Site(1, 1e-5), "c": Site(1, 1e-5), "d": Site(1, 1e-5, port=9503)}
    ports = Federation(sites, coordinator=Coordinator(port=9502)).ports()
    assert ports["a"] == 9501
    assert len(set(ports.values())) == 4
    assert 9502 not in ports.values()


@pytest.mark.parametrize("name", ["", "../x", "a b", "a\nb", "-a", "ä", "x" * 64])
def test_names_that_would_be_no_folder_or_service_are_refused(name):
    with pytest.raises(ConfigError, match="letters, digits"):
        Federation({name: Site(1, 1e-5)})


@pytest.mark.parametrize("host", ["", "a b", "a;b", 'a"b', "$(id)", "a\nb"])
def test_hosts_that_would_be_no_host_are_refused(host):
    with pytest.raises(ConfigError, match="host name"):
        Coordinator(host)


def test_the_compose_file_gives_a_node_none_of_the_silo_s_own_files(folder):
    text = (folder / "docker-compose.yml").read_text(encoding="utf-8")
    parts = json.loads(text.partition("\n")[2])["services"]
    assert set(parts) == {"coordinator", "north-node", "north-trainer", "south-node", "south-trainer"}
    mounted = {volume.split(":")[1].rpartition("/")[2] for volume in parts["north-node"]["volumes"]}
    assert mounted == set(services.OF_THE_NODE)
    assert not mounted & {"key.pem", "ledger.db", "silo.toml"}
    assert not any("ca.key" in volume for part in parts.values() for volume in part["volumes"])


def test_a_unit_starts_what_a_script_starts(folder):
    north = folder / "sites/north"
    assert 'sordino silo serve "$here"' in (north / "start.sh").read_text(encoding="utf-8")
    assert "ExecStart=/usr/bin/env sordino silo serve" in (north / "sordino-trainer.service").read_text(
        encoding="utf-8"
    )
    node = (north / "sordino-node.service").read_text(encoding="utf-8")
    assert "User=sordino-node" in node
    assert "LoadCredential=node.key:/etc/sordino/north/node.key" in node
    assert not (folder / "sites/south/sordino-trainer.service").exists()


@pytest.fixture
def script(folder, tmp_path):
    """A site's script with a stand-in for `sordino`, and what that was asked to do, by number of the process."""
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    (programs / "sordino").write_text(f'#!/bin/sh\necho "$$ $*" >> {log}\nexec sleep 60\n', encoding="utf-8")
    (programs / "sordino").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    with subprocess.Popen([folder / "sites/north/start.sh"], env=path) as script:
        end = time.monotonic() + 20
        while not log.exists() or len(log.read_text().splitlines()) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
        yield script, {words: int(pid) for pid, words in lines}
        script.terminate()


def nothing_is_left(pids):
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_script_starts_both_and_ends_both(folder, script):
    running, started = script
    north = folder / "sites/north"
    assert set(started) == {f"deploy serve {north}", f"silo serve {north}"}
    running.terminate()
    assert running.wait(10) == 143
    nothing_is_left(started.values())


@pytest.mark.parametrize("part", ["deploy serve", "silo serve"])
def test_a_script_ends_with_the_first_of_its_parts(script, part):
    """
    A site is not left with half of its processes, which nobody would notice.
    """
    running, started = script
    os.kill(next(pid for words, pid in started.items() if words.startswith(part)), signal.SIGKILL)
    assert running.wait(10) == 1
    nothing_is_left(started.values())


def test_sites_share_one_key_if_asked_for_and_the_coordinator_has_none(tmp_path):
    plan = Federation({"north": Site(8, 1e-5), "south": Site(8, 1e-5)}, homomorphic=True)
    layout.write(plan, tmp_path / "fed")
    assert federation.read(tmp_path / "fed/federation.toml").homomorphic
    found = sorted((tmp_path / "fed").rglob(sealing.KEY))
    assert [path.parent.name for path in found] == ["north", "south"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in found)
    assert len({path.read_bytes() for path in found}) == 1
    assert Key.load(found[0]).context.has_secret_key()


def test_one_key_for_many_sites_is_refused():
    with pytest.raises(ConfigError, match="all of them hold one key"):
        Federation({f"site-{i}": Site(8, 1e-5) for i in range(6)}, homomorphic=True)


def test_a_site_s_key_that_is_not_the_others_is_said(tmp_path):
    pytest.importorskip("flwr")
    layout.write(Federation({"north": Site(8, 1e-5), "south": Site(8, 1e-5)}, homomorphic=True), tmp_path / "fed")
    there = tmp_path / "fed/sites/south" / sealing.KEY
    there.write_bytes(Key.generate().content)
    assert f"{sealing.KEY}: is not the same at all sites" in checking.check(tmp_path / "fed", code=b"")["south"]
    there.write_bytes(b"nothing of the kind, but long enough to be read")
    assert any("no key" in problem for problem in checking.check(tmp_path / "fed/sites/south", code=b"")["south"])
