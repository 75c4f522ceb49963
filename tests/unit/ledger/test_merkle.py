"""The Merkle tree: roots and proofs against the RFC's definition, published vectors, and damaged proofs."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.core.errors import ConfigError, VerificationError
from sordino.ledger import merkle

LEAVES = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
LEAVES += [bytes.fromhex("606162636465666768696a6b6c6d6e6f")]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
"""The test tree of transparency-dev/merkle (testonly/constants.go), the reference for Certificate Transparency."""

trees = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


def by_definition(leaves):
    """MTH of RFC 9162, section 2.1.1, word for word and slow."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return hashlib.sha256(b"\x01" + by_definition(leaves[:half]) + by_definition(leaves[half:])).digest()


@pytest.mark.parametrize(("size", "expected"), ROOTS.items())
def test_roots_of_the_published_tree(size, expected):
    """Another program's roots."""
    assert merkle.root(LEAVES[:size]).hex() == expected


def test_proofs_of_the_published_tree():
    """Another program's proofs: leaf 5 of 8, and 6 leaves that grew to 8."""
    assert [h.hex()[:8] for h in merkle.inclusion(LEAVES, 5)] == ["bc1a0643", "ca854ea1", "d37ee418"]
    assert [h.hex()[:8] for h in merkle.consistency(LEAVES, 6)] == ["0ebc5d34", "ca854ea1", "d37ee418"]


@given(leaves=trees, cut=st.integers(0, 70))
def test_the_root_is_the_definition_however_the_tree_grew(leaves, cut):
    """A frontier that is extended in two parts is that of the whole."""
    whole = merkle.Frontier().extended(leaves[:cut]).extended(leaves[cut:])
    assert (whole.size, whole.root()) == (len(leaves), by_definition(leaves))
    assert len(whole.subtrees) == len(leaves).bit_count()


@given(leaves=trees, data=st.data())
def test_every_leaf_is_proved_and_no_other(leaves, data):
    """Another leaf, another place or another tree does not pass."""
    index = data.draw(st.integers(0, len(leaves) - 1))
    proof, top = merkle.inclusion(leaves, index), by_definition(leaves)
    merkle.check_inclusion(leaves[index], index, len(leaves), proof, top)
    with pytest.raises(VerificationError):
        merkle.check_inclusion(leaves[index] + b"x", index, len(leaves), proof, top)
    with pytest.raises(VerificationError):
        merkle.check_inclusion(leaves[index], index, len(leaves), proof, by_definition([*leaves, b"x"]))
    for damaged in damages(proof):
        with pytest.raises(VerificationError):
            merkle.check_inclusion(leaves[index], index, len(leaves), damaged, top)


@given(leaves=trees, data=st.data())
def test_growth_is_proved_and_rewriting_is_not(leaves, data):
    """A tree whose past was changed in one leaf has no proof, even if the whole tree's owner makes it."""
    first = data.draw(st.integers(1, len(leaves)))
    before, after = by_definition(leaves[:first]), by_definition(leaves)
    proof = merkle.consistency(leaves, first)
    merkle.check_consistency(first, before, len(leaves), after, proof)
    for damaged in damages(proof):
        with pytest.raises(VerificationError):
            merkle.check_consistency(first, before, len(leaves), after, damaged)
    changed = list(leaves)
    changed[data.draw(st.integers(0, first - 1))] += b"x"
    with pytest.raises(VerificationError):
        merkle.check_consistency(first, before, len(leaves), by_definition(changed), merkle.consistency(changed, first))


def damages(proof):
    """A hash too many, one too few, one changed."""
    yield [*proof, merkle.EMPTY]
    if proof:
        yield proof[:-1]
        yield proof[1:]
        yield [bytes([proof[0][0] ^ 1]) + proof[0][1:], *proof[1:]]


def test_a_tree_never_shrinks():
    """Fewer leaves than before have no proof, and neither has no tree at all."""
    for first, second in ((3, 2), (0, 2)):
        with pytest.raises(VerificationError):
            merkle.check_consistency(first, merkle.root(LEAVES[:first]), second, merkle.root(LEAVES[:second]), [])
    for first in (0, 9):
        with pytest.raises(ConfigError):
            merkle.consistency(LEAVES, first)
    with pytest.raises(ConfigError):
        merkle.inclusion(LEAVES, 8)
