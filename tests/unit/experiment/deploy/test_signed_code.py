"""Bundles of code and their signatures, held against Flower's own reading of both."""

from __future__ import annotations

import json

import pytest

flwr = pytest.importorskip("flwr")

from flwr.cli.install import install_from_fab  # noqa: E402
from flwr.common.config import get_fab_config  # noqa: E402
from flwr.supercore.fab import Fab  # noqa: E402
from flwr.supernode.start_client_internal import _verify_fab  # noqa: E402

from sordino.core import code  # noqa: E402
from sordino.core.errors import ConfigError, VerificationError  # noqa: E402
from sordino.experiment.deploy import bundle, signatures  # noqa: E402
from sordino.ledger.keys import SigningKey, VerifyKey  # noqa: E402


@pytest.fixture
def key():
    return SigningKey.generate("north")


def trusted(*keys):
    import yaml

    return yaml.safe_load(signatures.trusted_entities([key.public for key in keys]))


def stored(content, *signed):
    return Fab(bundle.digest(content), content, {one.reviewer: one.entry() for one in signed} | {"valid_license": "x"})


def test_flower_accepts_what_a_trusted_reviewer_signed(key):
    content = bundle.fab()
    assert _verify_fab(stored(content, signatures.sign(key, content)), trusted(key))


def test_flower_refuses_changed_code_another_key_and_no_signature(key):
    content = bundle.fab()
    signed = signatures.sign(key, content)
    assert not _verify_fab(stored(content + b"\n", signed), trusted(key))
    assert not _verify_fab(stored(content, signed), trusted(SigningKey.generate("north")))
    assert not _verify_fab(stored(content, signed), trusted(SigningKey.generate("south")))
    assert not _verify_fab(stored(content), trusted(key))


def test_our_own_check_agrees_with_flower_s(key):
    signed = signatures.sign(key, b"code")
    signed.verify([key.public], b"code")
    with pytest.raises(VerificationError, match="other code"):
        signed.verify([key.public], b"other")
    with pytest.raises(VerificationError, match="nobody who reviews"):
        signed.verify([SigningKey.generate("south").public], b"code")
    with pytest.raises(VerificationError, match="not by this key"):
        signed.verify([SigningKey.generate("north").public], b"code")


def test_a_signature_of_code_is_none_of_any_text_that_the_key_signs(key):
    """Times begin with a zero byte, texts never do."""
    signed = signatures.sign(key, b"code")
    assert signatures._message(signed.signed_at, bytes(32))[:4] == bytes(4)


def test_two_reviewers_of_one_name_are_refused(key):
    with pytest.raises(ConfigError, match="names of their own"):
        signatures.trusted_entities([key.public, SigningKey.generate("north").public])


def test_a_name_cannot_add_an_entry_of_its_own(key):
    import yaml

    odd = VerifyKey('x":y', key.public.raw)

    assert set(yaml.safe_load(signatures.trusted_entities([odd]))) == {'x":y'}


def test_the_bundle_is_one_that_flower_reads_and_installs(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    content = bundle.fab()
    settings = get_fab_config(content)["tool"]["flwr"]["app"]
    assert settings["config"] == {"code": code.digest(), "plan": ""}
    installed = install_from_fab(content, install_dir=tmp_path, skip_prompt=True)
    assert (installed / "sordino_federation.py").exists()


def test_the_bundle_is_the_same_on_every_machine(monkeypatch):
    """Another zlib, clock or system would change a compressed, dated zip; a changed package must change it."""
    import time
    import zlib

    first = bundle.fab()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(zlib, "compressobj", None)
    monkeypatch.setattr("sys.platform", "win32")
    assert bundle.fab() == first
    monkeypatch.setattr(code, "digest", lambda: "0" * 64)
    assert bundle.fab() != first


def test_the_bundle_refuses_to_start_beside_other_code(tmp_path, monkeypatch):
    monkeypatch.setattr(code, "digest", lambda: "0" * 64)
    installed = install_from_fab(bundle.fab(), install_dir=tmp_path, skip_prompt=True)
    source = (installed / "sordino_federation.py").read_text(encoding="utf-8")
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="install the same"):
        exec(compile(source, "sordino_federation.py", "exec"), {})  # noqa: S102


def test_signatures_over_other_code_are_left_out(key, tmp_path):
    (tmp_path / "signatures").mkdir()
    for number, content in enumerate((b"code", b"other")):
        (tmp_path / f"signatures/{number}.json").write_text(signatures.sign(key, content).json(), encoding="utf-8")
    assert [one.fab for one in signatures.read(tmp_path, b"code")] == [bundle.digest(b"code")]
    (tmp_path / "signatures/2.json").write_text(json.dumps({"fab": 1}), encoding="utf-8")
    with pytest.raises(ConfigError, match="code signature"):
        signatures.read(tmp_path, b"code")
