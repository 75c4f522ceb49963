"""What a server sees is uniform while it lacks one mask; each test is failed by a client that masks badly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from secure_crowd import crowd, stripped, terms, uniform, vectors, verify

from sordino.federation.secure import Client, Server, Terms, keys, masks

SIZE, BITS = 20_000, 20
SURE, CAUGHT = 1e-6, 1e-12
"""False alarms of a sound client are this rare; a broken one is this clear."""


def masked(of: Terms, values: dict[int, np.ndarray], kind: type[Client] = Client) -> tuple[dict, dict]:
    """All clients, and the vector that each sends, of a sum in which everybody is there."""
    clients, server = crowd(of, kind), Server(of, verify=verify)
    for client in clients.values():
        server.hear(client.advertise())
    adverts = server.adverts()
    for own, client in clients.items():
        server.hear(client.share(adverts[own]))
    sealed = server.sealed()
    return clients, {own: client.mask(sealed[own], values[own]).vector(of) for own, client in clients.items()}


def pairs(clients: dict[int, Client], own: int) -> dict[str, list[bytes]]:
    """The keys of the masks that a client shares with others, as those others know them."""
    digest = clients[own].terms.digest
    shared = {o: keys.mask_key(c._mask, clients[own]._mask.public, digest, own, o) for o, c in clients.items()}
    return {
        "add": [key for other, key in shared.items() if other > own],
        "subtract": [key for other, key in shared.items() if other < own],
    }


class NoSelfMask(Client):
    """Adds its own mask, and takes it off again."""

    def mask(self, inbox, vector):
        bare = masks.words(vector, self.terms.bits)
        masks.take(bare, self._seed)
        return super().mask(inbox, masks.residues(bare, self.terms.bits))


def without_pairs(kind: type[Client]) -> np.ndarray:
    """What is left of a vector of zeros when everybody else gave away the pairwise masks with its sender."""
    of = terms(4, 3, bits=BITS, size=SIZE)
    clients, sent = masked(of, dict.fromkeys(of.members, np.zeros(SIZE, dtype=np.uint64)), kind)
    return stripped(sent[4], BITS, **pairs(clients, 4))


def test_the_own_mask_alone_still_hides():
    """A server that calls a client lost, and gets its mask key, has a late vector under the own mask only."""
    assert uniform(without_pairs(Client), BITS) > SURE
    assert uniform(without_pairs(NoSelfMask), BITS) < CAUGHT


def without_own(of: Terms) -> np.ndarray:
    """What is left of the middle client's zeros without its own mask."""
    clients, sent = masked(of, dict.fromkeys(of.members, np.zeros(of.size, dtype=np.uint64)))
    return stripped(sent[4], of.bits, add=[clients[4]._seed], subtract=[])


def test_pairwise_masks_alone_hide_until_the_sum(monkeypatch):
    """A survivor's own mask comes off. One that uses the same mask with all neighbours then stands bare."""
    of = terms(3, 2, bits=BITS, size=SIZE)
    assert uniform(without_own(of), BITS) > SURE
    monkeypatch.setattr(keys, "mask_key", lambda *_: bytes(32))
    assert uniform(without_own(of), BITS) < CAUGHT


@pytest.mark.parametrize("bits", [8, 20, 32, 33, 62])
def test_masks_are_uniform_in_every_byte_and_bit(bits):
    total = masks.words(np.zeros(SIZE, dtype=np.uint64), bits)
    masks.put(total, bytes(range(32)))
    assert uniform(masks.residues(total, bits), bits) > SURE


def test_a_mask_with_one_dead_bit_is_caught():
    total = masks.words(np.zeros(SIZE, dtype=np.uint64), BITS)
    masks.put(total, bytes(range(32)))
    assert uniform(masks.residues(total, BITS) & ~np.uint64(16), BITS) < CAUGHT


def indistinguishable(one: np.ndarray, other: np.ndarray) -> float:
    """The p-value that two samples are of one law, by chi-square on 64 cells and Kolmogorov and Smirnov."""
    cells = [np.bincount((sample >> np.uint64(BITS - 6)).astype(int), minlength=64) for sample in (one, other)]
    table = np.array(cells)[:, np.sum(cells, axis=0) > 0]
    counts = stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0
    return min(counts, stats.ks_2samp(one, other).pvalue)


class AddsSmallMask(Client):
    """Masks only the lower half of the bits."""

    def mask(self, inbox, vector):
        sent = super().mask(inbox, vector)
        low = np.uint64(2 ** (self.terms.bits // 2) - 1)
        kept = (vector & ~low) | (sent.vector(self.terms) & low)
        return type(sent)(sent.digest, sent.sender, masks_packed(kept, self.terms.bits))


def masks_packed(values: np.ndarray, bits: int) -> bytes:
    from sordino.federation.secure import packing

    return packing.pack(values, bits)


@pytest.mark.parametrize(("kind", "sound"), [(Client, True), (AddsSmallMask, False)])
def test_two_very_different_inputs_look_alike(kind, sound):
    of = terms(3, 2, bits=BITS, size=SIZE)
    views = []
    for value in (0, 2**BITS - 1):
        same = np.full(SIZE, value, dtype=np.uint64)
        views.append(masked(of, dict.fromkeys(of.members, same), kind)[1][4])
    found = indistinguishable(*views)
    assert found > SURE if sound else found < CAUGHT


class FixedKeys(Client):
    """Draws the same keys in every sum."""

    def __init__(self, terms, position, *, sign, verify):
        super().__init__(terms, position, sign=sign, verify=verify, random=lambda size: bytes([position]) * size)


@pytest.mark.parametrize(("kind", "sound"), [(Client, True), (FixedKeys, False)])
def test_two_sums_do_not_share_a_mask(kind, sound):
    """The difference of what one client sends in two sums says nothing of the difference of its vectors."""
    of = terms(3, 2, bits=BITS, size=SIZE)
    one, other = (masked(of, vectors(of, seed), kind)[1][4] for seed in (1, 2))
    known = vectors(of, 1)[4] - vectors(of, 2)[4]
    agree = np.mean(((one - other) - known) & np.uint64(2**BITS - 1) == 0)
    assert agree < 1e-3 if sound else agree == 1.0


@pytest.mark.parametrize("sound", [True, False])
def test_every_bit_of_a_key_matters(sound, monkeypatch):
    """Flower 1.42 folds a key into 32 bits by XOR: other keys then give the same mask, and 2^32 tries find one."""
    if not sound:
        walk = masks._walk
        folded = lambda key: np.bitwise_xor.reduce(np.frombuffer(key, "<u4")).tobytes() * 8  # noqa: E731
        monkeypatch.setattr(masks, "_walk", lambda total, key, change: walk(total, folded(key), change))

    def mask(key: int) -> bytes:
        total = masks.words(np.zeros(8, dtype=np.uint64), 62)
        masks.put(total, key.to_bytes(32, "little"))
        return total.tobytes()

    seen = {mask((1 << bit) | (1 << (bit + 32))) for bit in range(224)}
    assert len(seen) == (224 if sound else 1)
