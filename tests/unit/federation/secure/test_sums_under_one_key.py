"""Sums under one key: exact to the flood, unreadable without the key, which does not follow from what is opened."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.core.errors import ConfigError, EngineError
from sordino.federation.secure import homomorphic
from sordino.federation.secure.homomorphic import SLOTS, Key, Terms, add, decrypt, encrypt

SIZE = SLOTS + 7
"""More than one ciphertext."""


@pytest.fixture(scope="module")
def key():
    return Key.generate()


def terms(members=3, **more):
    return Terms(**{"txid": "run/0", "members": members, "size": SIZE, **more})


def updates(of, seed=0):
    return np.random.default_rng(seed).normal(size=(of.members, of.size)).astype(np.float32)


@pytest.mark.parametrize("members", [2, 5])
def test_the_sum_is_exact_to_the_flood(key, members):
    """
    Single precision, 2^-24 of numbers up to about 10, is coarser than the flood of 2^-30.
    """
    of = terms(members)
    vectors = updates(of)
    opened = decrypt(key, of, add(of, [encrypt(key, of, vector) for vector in vectors]))
    exact = vectors.astype(np.float64).sum(axis=0)
    assert opened.dtype == np.float32
    assert np.abs(opened - exact).max() < 8 * 2**-30 + 2**-20


def raw(key, of, total):
    """A sum as CKKS decrypts it."""
    _, _, chunks = homomorphic._opened(of, total)
    return np.concatenate([np.asarray(homomorphic._vector(key.context, chunk).decrypt()) for chunk in chunks])


def test_what_is_opened_is_flooded(key):
    """
    The error of a ciphertext is a linear equation in the key. It must drown.
    """
    of = terms(5)
    parts = [encrypt(key, of, np.zeros(SIZE, np.float32)) for _ in range(5)]
    total = add(of, parts)
    error, opened = raw(key, of, total), decrypt(key, of, total)
    assert 0 < np.abs(error).max() < 2.0 ** (12 - of.bits - homomorphic.HIDDEN)
    # A twin that gives back what it decrypts has a spread of 2^-86 here, and one that floods by the error 2^-85.
    assert opened.std() == pytest.approx(2.0**-of.bits, rel=0.05)
    assert abs(np.corrcoef(opened, error)[0, 1]) < 0.06


def test_the_key_follows_from_a_sum_that_is_not_flooded(key):
    """
    Why it is flooded (Li and Micciancio): with numbers below the error, what is decrypted is the error itself.
    """
    of = terms(2)
    total = add(of, [encrypt(key, of, np.zeros(SIZE, np.float32)) for _ in range(2)])
    scaled = raw(key, of, total) * of.scale
    # All that a ciphertext hides is in it: two draws of rounded Gaussians of deviation 3.2 under the transform.
    assert scaled.std() == pytest.approx(3.2 * np.sqrt(2 * SLOTS), rel=0.1)


def test_all_who_have_the_key_open_alike_and_asking_twice_tells_nothing_new(key):
    """
    The flood depends on key and ciphertext only, so that it cannot be averaged away; another sum has another.
    """
    of = terms()
    parts = [encrypt(key, of, vector) for vector in updates(of)]
    total = add(of, parts)
    other = Key(key.content)
    assert decrypt(key, of, total).tobytes() == decrypt(other, of, total).tobytes()
    fresh = add(of, [encrypt(key, of, vector) for vector in updates(of)])
    assert not np.array_equal(key.flood(total, of), key.flood(fresh, of))
    assert not np.array_equal(key.flood(total, of), Key.generate().flood(total, of))


def test_without_the_key_nothing_opens_and_equal_updates_look_different(key):
    """
    The coordinator's parameters hold no key at all; one made by somebody else opens to nonsense, which is refused.
    """
    of = terms()
    parts = [encrypt(key, of, vector) for vector in updates(of)]
    total = add(of, parts)
    plain = homomorphic._without_key()
    assert not plain.has_secret_key()
    with pytest.raises(ValueError, match="secret_key"):
        homomorphic._vector(plain, homomorphic._opened(of, total)[2][0]).decrypt()
    stranger = Key.generate()
    with pytest.raises(ConfigError, match="under another key"):
        decrypt(stranger, of, total)
    forged = total.replace(bytes.fromhex(key.name), bytes.fromhex(stranger.name))
    with pytest.raises(EngineError, match="does not decrypt"):
        decrypt(stranger, of, forged)
    same = [encrypt(key, of, np.ones(SIZE, np.float32)) for _ in range(2)]
    words = [np.frombuffer(part[-8 * SLOTS :], np.uint8) for part in same]
    assert np.mean(words[0] == words[1]) < 0.1


def test_mixed_keys_are_refused(key):
    """
    Their sum would open to nonsense.
    """
    of = terms()
    vectors = updates(of)
    parts = [encrypt(key, of, vectors[0]), encrypt(Key.generate(), of, vectors[1])]
    with pytest.raises(ConfigError, match="under different keys"):
        add(of, parts)


def test_a_single_update_is_not_opened(key):
    """
    Not by an honest silo, and not as a sum with nobody.
    """
    of = terms()
    part = encrypt(key, of, updates(of)[0])
    with pytest.raises(EngineError, match="must be 2 to 3"):
        add(of, [part])
    with pytest.raises(EngineError, match="only sums are opened"):
        decrypt(key, of, part)
    with pytest.raises(EngineError, match="must be 2 to 3"):
        add(of, [part] * 4)


def test_parts_of_another_sum_and_bytes_that_are_none_are_refused(key):
    """
    Whatever arrives: an error of ours, never of the library's.
    """
    of = terms()
    part = encrypt(key, of, updates(of)[0])
    other = terms(txid="run/1")
    with pytest.raises(EngineError, match="of another sum"):
        add(other, [part, part])
    for bad in (b"", part[:50], part[:-1], part + b"x", b"?" + part[1:]):
        with pytest.raises(EngineError, match="cannot be read"):
            add(of, [part, bad])
    head, rest = part[:69], part[69:]
    torn = head + (100).to_bytes(8, "big") + rest[8:108] + (100).to_bytes(8, "big") + rest[8:108]
    with pytest.raises(EngineError, match="no ciphertext"):
        add(of, [part, torn])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
def test_what_would_not_fit_is_not_sent(key, value):
    """
    A sum beyond the modulus would wrap round.
    """
    of = terms()
    vector = updates(of)[0]
    vector[3] = value
    with pytest.raises(EngineError, match=r"above 2\.79"):
        encrypt(key, of, vector)
    with pytest.raises(EngineError, match="not of shape"):
        encrypt(key, of, vector[1:])


def test_the_largest_numbers_add_up(key):
    """
    Five at the limit, for the finest sum.
    """
    of = terms(5, bits=40)
    vector = np.full(SIZE, of.largest, np.float64)
    opened = decrypt(key, of, add(of, [encrypt(key, of, vector)] * 5))
    assert opened == pytest.approx(5 * of.largest, rel=1e-6)


@pytest.mark.parametrize("wrong", [{"members": 1}, {"members": 6}, {"bits": 15}, {"bits": 41}, {"size": 0}])
def test_terms_that_make_no_sense_are_refused(wrong):
    """
    One silo has no sum, six have too many holders of one key.
    """
    with pytest.raises(ConfigError):
        terms(**wrong)


def test_a_file_that_is_no_key_is_refused(tmp_path, key):
    """
    Missing, spoilt, or without the secret.
    """
    file = tmp_path / "homomorphic.key"
    with pytest.raises(ConfigError, match="cannot be read"):
        Key.load(file)
    file.write_bytes(b"x" * 100)
    with pytest.raises(ConfigError, match="no key"):
        Key.load(file)
    file.write_bytes(bytes(32) + homomorphic._fresh().serialize(save_public_key=False, save_galois_keys=False))
    with pytest.raises(ConfigError, match="secret key"):
        Key.load(file)
    file.write_bytes(key.content)
    assert Key.load(file) == key
    assert key.content.hex()[:16] not in repr(key)
