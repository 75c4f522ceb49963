"""What Flower's database is told directly, and what is left in it after a run."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sordino.core.errors import ConfigError, EngineError, VerificationError
from sordino.experiment.deploy import at_rest, bundle, flower_code, signatures
from sordino.ledger.keys import SigningKey

CODE = bundle.fab()
SIGNED = [signatures.sign(SigningKey.generate("north"), CODE)]


@pytest.fixture(scope="module")
def module_database(tmp_path_factory):
    path = tmp_path_factory.mktemp("flower") / "superlink.db"
    with flower_code.state(path) as opened:
        yield path, opened


@pytest.fixture
def opened(module_database):
    return module_database[1]


@pytest.fixture
def database(module_database):
    return module_database[0]


def public() -> bytes:
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


def test_the_files_say_which_nodes_there_are(opened):
    keys = {"north": public(), "south": public()}
    flower_code.register(opened, keys)
    first = flower_code.nodes(opened)
    assert {name: status for name, (_, status) in first.items()} == {"north": "registered", "south": "registered"}
    flower_code.register(opened, keys)
    assert flower_code.nodes(opened) == first
    flower_code.register(opened, {"north": keys["north"], "east": public()})
    assert set(flower_code.nodes(opened)) == {"north", "east"}
    assert flower_code.nodes(opened)["north"] == first["north"]
    with pytest.raises(ConfigError, match="node key"):
        flower_code.register(opened, {"north": b"ssh-rsa AAAA"})


def test_a_run_carries_its_code_its_signatures_and_its_settings(opened):
    key = SigningKey.generate("north")
    run = flower_code.stored_run(opened, CODE, [signatures.sign(key, CODE, signed_at=7)], {"plan": "abc"})
    (info,) = opened.get_run_info(run_ids=[run])
    assert info.override_config == {"plan": "abc"}
    assert opened.get_fab(info.fab_hash).content == CODE
    proofs = flower_code.verifications(opened, info.fab_hash)
    assert set(proofs) == {"north", "valid_license"}
    assert proofs["north"]["signed_at"] == 7


def test_a_run_adds_no_setting_that_was_not_signed(opened):
    with pytest.raises(ConfigError, match="has no setting 'plna'"):
        flower_code.stored_run(opened, CODE, SIGNED, {"plna": "abc"})
    with pytest.raises(ConfigError, match="none of Flower's"):
        flower_code.stored_run(opened, b"no bundle", SIGNED, {})
    with pytest.raises(ConfigError, match="signed by nobody"):
        flower_code.stored_run(opened, CODE, [], {})


def test_a_run_s_token_is_given_once(opened):
    run = flower_code.stored_run(opened, CODE, SIGNED, {})
    assert run in flower_code.running(opened)
    assert len(flower_code.claim(opened, run)) > 20
    with pytest.raises(EngineError, match="taken already"):
        flower_code.claim(opened, run)
    opened.stop_run(run)
    assert run not in flower_code.running(opened)


def readable(database, array: bytes) -> int:
    """How many pieces of an array stand in the files; SQLite cuts it at the ends of pages."""
    contents = [path.read_bytes() for path in at_rest.files(database)]
    return sum(any(array[start : start + 64] in content for content in contents) for start in range(0, 32768, 64))


def pass_through(opened, number: int) -> bytes:
    """An update as Flower stores it until it is fetched, and deletes it then."""
    from flwr.proto.message_pb2 import ObjectTree

    array = np.random.default_rng(number).standard_normal(4096).tobytes()
    name = f"{number:064x}"
    store = opened.object_store
    store.preregister(number, ObjectTree(object_id=name, children=[]))
    store.verify = False
    store.put(name, array)
    if number % 2:
        store.delete(name)
    return array


def test_after_a_scrub_no_file_holds_an_update(database, opened):
    arrays = [pass_through(opened, number) for number in (1, 2)]
    assert all(readable(database, array) > 400 for array in arrays)  # the fetched one, too: why a scrub is needed
    assert at_rest.scrub(database, force=True) > 0
    assert [readable(database, array) for array in arrays] == [0, 0]
    assert at_rest.scrub(database, force=True) == 0


def test_deleting_alone_would_leave_them(database, opened):
    """The broken twin: as Flower does it."""
    array = pass_through(opened, 3)
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM objects")
    connection.close()
    assert readable(database, array) > 400


def test_a_scrub_waits_for_a_run_that_is_under_way(database, opened):
    run = flower_code.stored_run(opened, CODE, SIGNED, {})
    assert at_rest.scrub(database) >= 0  # nobody has begun it
    flower_code.claim(opened, run)
    with pytest.raises(EngineError, match="under way"):
        at_rest.scrub(database)
    opened.stop_run(run)
    at_rest.scrub(database)
    assert run in {info.run_id for info in opened.get_run_info()}


def test_a_run_whose_process_died_does_not_stop_a_scrub(database, opened):
    run = flower_code.stored_run(opened, CODE, SIGNED, {})
    flower_code.claim(opened, run)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE task SET active_until = datetime('now', '-1 second') WHERE finished_at IS NULL")
    connection.close()
    assert at_rest.scrub(database) >= 0


def test_by_default_the_database_lies_in_memory_in_a_folder_of_one_s_own(tmp_path):
    memory = tmp_path / "shm"
    memory.mkdir()
    path = at_rest.place(tmp_path / "one", memory=memory)
    assert path.parent.parent == memory
    assert not path.parent.exists()  # asking leaves nothing behind
    assert at_rest.place(tmp_path / "one", memory=memory, make=True) == path
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert at_rest.place(tmp_path / "two", memory=memory) != path
    assert at_rest.place(tmp_path / "one", memory=tmp_path / "none") == tmp_path / "one/state/superlink.db"
    assert at_rest.place(tmp_path / "one", "here/x.db", memory=memory) == tmp_path / "one/here/x.db"


@pytest.mark.parametrize("trick", ["open", "link"])
def test_a_place_that_others_prepared_is_refused(tmp_path, trick):
    memory = tmp_path / "shm"
    memory.mkdir()
    mine = at_rest.place(tmp_path / "one", memory=memory, make=True).parent
    if trick == "open":
        mine.chmod(0o777)
    else:
        mine.rmdir()
        mine.symlink_to(tmp_path)
    with pytest.raises(VerificationError, match="own folder"):
        at_rest.place(tmp_path / "one", memory=memory, make=True)
    with pytest.raises(VerificationError, match="own folder"):
        at_rest.place(tmp_path / "one", memory=memory)
    assert [path.name for path in memory.iterdir()] == [mine.name]
