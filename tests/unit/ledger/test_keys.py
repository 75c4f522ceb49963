"""Keys sign under a name, stay private, and print in the layout of C2SP signed notes."""

import base64
import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import ConfigError, VerificationError
from sordino.ledger.keys import SigningKey, VerifyKey

PUBLISHED = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
"""The key of the example in the documentation of golang.org/x/mod/sumdb/note."""

SAID = b"If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
SIGNED = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="


def saved(tmp_path, mode=0o600):
    key, path = SigningKey.generate("clinic-a"), tmp_path / "clinic-a.pem"
    key.save(path)
    path.chmod(mode)
    return key, path


def test_the_published_example_of_the_note_layout_is_read_and_verified():
    """The key's number, its text and the signature agree with an independent program's."""
    key = VerifyKey.parse(PUBLISHED)
    assert str(key) == PUBLISHED
    key.verify(SAID, SIGNED)
    with pytest.raises(VerificationError):
        key.verify(SAID + b"!", SIGNED)


@given(message=st.binary(max_size=200), other=st.binary(max_size=200))
def test_a_signature_holds_for_its_message_only(message, other):
    """Whatever the bytes."""
    key = SigningKey.generate("a")
    signature = key.sign(message)
    key.public.verify(message, signature)
    if message != other:
        with pytest.raises(VerificationError):
            key.public.verify(other, signature)


@pytest.mark.parametrize("position", range(0, 68, 5))
def test_every_changed_byte_of_a_signature_is_refused(position):
    """Key number and signature alike."""
    key = SigningKey.generate("a")
    value = bytearray(base64.b64decode(key.sign(b"x")))
    value[position] ^= 1
    with pytest.raises(VerificationError):
        key.public.verify(b"x", base64.b64encode(value).decode())


@pytest.mark.parametrize("twist", [lambda s: s + "\n", lambda s: s[:-4], lambda s: "", lambda s: s.replace("=", "")])
def test_a_signature_has_one_text(twist):
    """A twisted text is refused, not repaired."""
    key = SigningKey.generate("a")
    with pytest.raises(VerificationError):
        key.public.verify(b"x", twist(key.sign(b"xx")))


def test_another_owner_with_the_same_name_is_refused():
    """The name alone proves nothing."""
    with pytest.raises(VerificationError):
        SigningKey.generate("a").public.verify(b"x", SigningKey.generate("a").sign(b"x"))


def test_a_saved_key_loads_and_only_its_owner_can_read_it(tmp_path):
    """Signatures of the loaded key are the first one's."""
    key, path = saved(tmp_path)
    again = SigningKey.load(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert again.public == key.public
    assert again.sign(b"x") == key.sign(b"x")
    with pytest.raises(ConfigError, match="cannot be written"):
        key.save(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    """Such a key may have been copied."""
    _, path = saved(tmp_path, mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        SigningKey.load(path)


def test_the_private_half_is_in_no_text(tmp_path):
    """Neither in `repr`, nor in `str`, nor in an error about a broken file."""
    key, path = saved(tmp_path)
    secret = path.read_text().splitlines()[2]
    assert len(secret) > 40
    assert secret not in f"{key} {key!r} {key.public} {vars(key.public)}"
    path.write_text(path.read_text().replace("-----BEGIN PRIVATE KEY-----", "-----BEGIN"))
    with pytest.raises(ConfigError) as error:
        SigningKey.load(path)
    assert secret not in f"{error.value!r} {error.value.__context__!r}"
    with pytest.raises(TypeError):
        pickle.dumps(key)
    assert copy.copy(key).public == key.public


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\n", "\u2003"])
def test_a_name_is_one_word(name):
    """Otherwise a line of a note could be read in two ways."""
    with pytest.raises(ConfigError):
        SigningKey.generate(name)


@pytest.mark.parametrize(
    "text", ["", "a", "a+00000000+AA==", PUBLISHED[:-1], PUBLISHED.replace("c7", "c8"), "b" + PUBLISHED]
)
def test_a_mistyped_public_key_is_refused(text):
    """Its number is a check sum."""
    with pytest.raises(ConfigError):
        VerifyKey.parse(text)
