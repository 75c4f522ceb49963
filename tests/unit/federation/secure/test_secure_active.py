"""A server that does not follow the protocol, and messages that are not what they seem: all are refused."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from secure_crowd import crowd, signature, stripped, terms, vectors, verify

from sordino.core.errors import ConfigError, EngineError, PrivacyError
from sordino.federation.secure import Client, Consent, Server, Terms, keys, masks, packing, shamir
from sordino.federation.secure.messages import roll

OF = terms(4, 3)


class Scene:
    """Four clients and a server, brought up to a stage."""

    def __init__(self, until: str, kind: type[Client] = Client, of: Terms = OF) -> None:
        self.terms, self.clients, self.server, self.vectors = (
            of,
            crowd(of, kind),
            Server(of, verify=verify),
            vectors(of),
        )
        for step in ("adverts", "sealed", "survivors", "consents"):
            if step == until:
                return
            setattr(self, step, getattr(self, "_" + step)())

    def _adverts(self):
        self.said = {own: client.advertise() for own, client in self.clients.items()}
        return self._pass(self.server.adverts)

    def _sealed(self):
        self.said = {own: client.share(self.adverts[own]) for own, client in self.clients.items()}
        return self._pass(self.server.sealed)

    def _survivors(self):
        self.said = {own: c.mask(self.sealed[own], self.vectors[own]) for own, c in self.clients.items()}
        return self._pass(self.server.survivors)

    def _consents(self):
        self.said = {own: client.consent(self.survivors) for own, client in self.clients.items()}
        return self._pass(self.server.consents)

    def _pass(self, close):
        for message in self.said.values():
            self.server.hear(message)
        return close()


def consents(members, survivors) -> list[Consent]:
    """Valid signatures of members under a list, as colluders give them."""
    return [Consent(OF.digest, own, signature(own, roll(OF.digest, survivors))) for own in members]


class AnswersTwice(Client):
    """Forgets that it has spoken: the fault of a client without stages."""

    def _enter(self, stage):
        del stage

    def reveal(self, consents):
        kept = dict(self._shares)
        said = super().reveal(consents)
        self._shares = kept
        return said


def both_secrets(of: Terms, kind: type[Client], as_survivor: tuple[int, ...], as_lost: tuple[int, ...]) -> np.ndarray:
    """The last member's vector, from some that are told it survived and some that are told it was lost."""
    *others, victim = of.members
    scene = Scene("survivors", kind, of)
    sent = {own: c.mask(scene.sealed[own], scene.vectors[own]) for own, c in scene.clients.items()}
    secrets = []
    for asked, listed, part in ((as_survivor, of.members, "seeds"), (as_lost, tuple(others), "keys")):
        agreed = [scene.clients[own].consent(listed) for own in asked]
        said = [scene.clients[own].reveal(agreed) for own in asked]
        shares = {m.sender + 1: shamir.from_bytes(dict(getattr(m, part))[victim]) for m in said}
        secrets.append(shamir.joined(shares, shamir.weights(list(shares))).to_bytes(32, "big"))
    pair = keys.Pair.of(secrets[1])
    public = {advert.sender: advert.mask_key for advert in scene.adverts[victim]}
    below = [keys.mask_key(pair, public[own], of.digest, own, victim) for own in others]
    return stripped(sent[victim].vector(of), of.bits, add=[secrets[0]], subtract=below)


def test_nobody_reveals_both_secrets_of_one_client():
    """The attack reads the vector of a client whose neighbours answer twice, and gets nothing from sound ones."""
    everybody = (3, 4, 5)
    np.testing.assert_array_equal(both_secrets(OF, AnswersTwice, everybody, everybody), vectors(OF)[6])
    with pytest.raises(PrivacyError, match="was done"):
        both_secrets(OF, Client, everybody, everybody)


def test_two_lists_need_more_signatures_than_there_are():
    """With a threshold of two in five, two halves of sound clients give both secrets away; terms have a majority."""
    of = terms(5, 3)
    with pytest.raises(PrivacyError, match="threshold"):
        both_secrets(of, Client, (3, 4), (5, 6))
    object.__setattr__(of, "threshold", 2)  # past the check of Terms
    np.testing.assert_array_equal(both_secrets(of, Client, (3, 4), (5, 6)), vectors(of)[7])


def test_one_list_only_and_enough_signatures_under_it():
    scene = Scene("consents")
    for client in scene.clients.values():
        client.consent(OF.members)
    with pytest.raises(PrivacyError, match="was done"):
        scene.clients[3].consent((3, 4, 5))
    with pytest.raises(EngineError, match="not by its sender"):
        scene.clients[4].reveal(consents((3, 4, 5), (3, 4, 5)))
    with pytest.raises(PrivacyError, match="threshold"):
        scene.clients[5].reveal(consents((5, 6), OF.members))
    with pytest.raises(EngineError, match="twice"):
        scene.clients[6].reveal(consents((5, 5, 6), OF.members))
    with pytest.raises(PrivacyError, match="was done"):
        scene.clients[6].reveal(consents((4, 5, 6), OF.members))


@pytest.mark.parametrize(
    ("survivors", "match"),
    [((3, 4), "threshold"), ((4, 5, 6), "leaves out"), ((3, 4, 5, 9), "members"), ((3, 5, 4), "sorted"), ((), "out")],
)
def test_lists_of_survivors_that_are_refused(survivors, match):
    with pytest.raises(PrivacyError, match=match):
        Scene("consents").clients[3].consent(survivors)


def test_a_neighbour_without_a_mask_cannot_survive():
    """A server that keeps boxes back would leave two survivors without a mask between them."""
    scene = Scene("survivors")
    scene.clients[3].mask([box for box in scene.sealed[3] if box.sender != 6], scene.vectors[3])
    with pytest.raises(PrivacyError, match="never masked"):
        scene.clients[3].consent(OF.members)


def test_a_client_speaks_only_where_enough_are_around():
    scene = Scene("sealed")
    with pytest.raises(PrivacyError, match="advertised"):
        scene.clients[3].share(scene.adverts[3][:1])
    scene = Scene("survivors")
    with pytest.raises(PrivacyError, match="share with it"):
        scene.clients[3].mask(scene.sealed[3][:1], scene.vectors[3])


def forged(advert, **changes):
    return replace(advert, **changes)


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"mask_key": bytes(31) + b"\x09"}, "not by its sender"),
        ({"seal_key": bytes(31) + b"\x09"}, "not by its sender"),
        ({"signature": "00"}, "not by its sender"),
        ({"sender": 5}, "not by its sender"),
        ({"digest": bytes(32)}, "another sum"),
    ],
)
def test_forged_adverts(side, changes, match):
    """A key in another's name, another position, another sum: neither client nor server takes it."""
    scene = Scene("adverts")
    advert = forged(scene.clients[4].advertise(), **changes)
    scene.clients[3].advertise()
    with pytest.raises(EngineError, match=match):
        scene.clients[3].share([advert]) if side == "client" else scene.server.hear(advert)


def test_a_replay_of_another_transaction():
    """The same client and the same keys, signed for another txid."""
    old = Scene("sealed", of=replace(OF, txid="round 0"))
    new = Scene("adverts")
    with pytest.raises(EngineError, match="another sum"):
        new.server.hear(old.said[4])
    signed_again = replace(old.said[4], digest=OF.digest)
    with pytest.raises(EngineError, match="not by its sender"):
        new.server.hear(signed_again)


def test_boxes_are_for_one_reader_from_one_sender():
    for changes in ({"box": bytes(82)}, {"recipient": 4}, {"sender": 5}, {"digest": bytes(32)}):
        scene = Scene("survivors")
        box = next(box for box in scene.sealed[3] if box.sender == 4)
        rest = [other for other in scene.sealed[3] if other.sender == 6]
        with pytest.raises(EngineError):
            scene.clients[3].mask([replace(box, **changes), *rest], scene.vectors[3])
    scene = Scene("survivors")
    with pytest.raises(EngineError, match="not open"):  # a box by 4 for 5 says nothing to 3
        scene.clients[3].mask(
            [replace(next(b for b in scene.sealed[5] if b.sender == 4), recipient=3)], scene.vectors[3]
        )


def test_a_key_that_makes_the_secret_public():
    """The point of order one agrees on zeros with everybody, whoever signed it."""
    scene = Scene("adverts")
    bad = replace(scene.clients[4].advertise(), seal_key=bytes(32))
    bad = replace(bad, signature=signature(4, bad.text))
    adverts = [bad, scene.clients[5].advertise()]
    scene.clients[3].advertise()
    with pytest.raises(EngineError, match="not usable"):
        scene.clients[3].share(adverts)


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(4, dtype=np.uint64),
        np.zeros(5, dtype=np.int64),
        np.full(5, 2**20, dtype=np.uint64),
        np.zeros((5, 1), dtype=np.uint64),
    ],
)
def test_vectors_that_do_not_fit(vector):
    scene = Scene("survivors")
    with pytest.raises(ConfigError):
        scene.clients[3].mask(scene.sealed[3], vector)


def test_the_server_takes_each_message_once_in_its_stage():
    """A bad message leaves the server as it was, and a late one is not counted."""
    scene = Scene("survivors")
    sent = [client.mask(scene.sealed[own], scene.vectors[own]) for own, client in scene.clients.items()]
    with pytest.raises(EngineError, match="bytes"):
        scene.server.hear(replace(sent[0], packed=sent[0].packed + b"\0"))
    for message in sent[:3]:
        scene.server.hear(message)
    with pytest.raises(EngineError, match="twice"):
        scene.server.hear(sent[0])
    with pytest.raises(EngineError, match="not of this stage"):
        scene.server.hear(consents((3,), (3, 4, 5))[0])
    listed = scene.server.survivors()
    assert listed == (3, 4, 5)
    with pytest.raises(EngineError, match="not of this stage"):
        scene.server.hear(sent[3])
    with pytest.raises(EngineError, match="order"):
        scene.server.survivors()
    with pytest.raises(EngineError, match="lost before"):
        scene.server.hear(consents((6,), listed)[0])
    for own in listed:
        scene.server.hear(scene.clients[own].consent(listed))
    agreed = scene.server.consents()
    for own in listed:
        scene.server.hear(scene.clients[own].reveal(agreed))
    expected = sum(int(scene.vectors[own][0]) for own in listed) % 2**20
    assert int(scene.server.total()[0]) == expected


@pytest.mark.parametrize("part", ["seeds", "keys"])
def test_a_client_that_reveals_wrong_shares_spoils_the_sum_and_is_noticed(part):
    """A wrong secret does not fit the hash of the seed, or the public key."""
    scene = Scene("survivors")
    for own in (3, 4, 5):
        scene.server.hear(scene.clients[own].mask(scene.sealed[own], scene.vectors[own]))
    listed = scene.server.survivors()
    for own in listed:
        scene.server.hear(scene.clients[own].consent(listed))
    agreed = scene.server.consents()
    for own in listed:
        said = scene.clients[own].reveal(agreed)
        if own == 4:
            wrong = tuple((owner, bytes(33)) for owner, _ in getattr(said, part))
            said = replace(said, **{part: wrong})
        scene.server.hear(said)
    with pytest.raises(EngineError, match="shares"):
        scene.server.total()


def test_a_masked_vector_does_not_change_what_was_given():
    scene = Scene("survivors")
    before = scene.vectors[3].copy()
    scene.clients[3].mask(scene.sealed[3], scene.vectors[3])
    np.testing.assert_array_equal(scene.vectors[3], before)
    assert masks.residues(masks.words(before, 62), 62).dtype == np.uint64
    assert packing.packed_bytes(5, 20) == 13


def masked_by(scene: Scene, members) -> tuple[int, ...]:
    """The list of survivors when only these have sent a vector."""
    for own in members:
        scene.server.hear(scene.clients[own].mask(scene.sealed[own], scene.vectors[own]))
    return scene.server.survivors()


def test_a_signature_by_somebody_who_is_lost_does_not_count():
    scene = Scene("survivors")
    listed = masked_by(scene, (3, 4, 5))
    scene.clients[3].consent(listed)
    with pytest.raises(EngineError, match="no survivor"):
        scene.clients[3].reveal(consents((3, 4, 6), listed))


def test_a_list_that_leaves_a_member_too_few_neighbours_on_a_circle():
    """Eight members, four neighbours each: with three of the four gone, two shares of four needed are left."""
    of = terms(8, 5, degree=4, quorum=4)
    scene = Scene("survivors", of=of)
    scene.clients[3].mask(scene.sealed[3], scene.vectors[3])
    gone = sorted(of.neighbours[3])[:3]
    with pytest.raises(PrivacyError, match="neighbours survive"):
        scene.clients[3].consent([own for own in of.members if own not in gone])


def test_the_server_counts_only_who_was_there_before():
    scene = Scene("adverts")
    adverts = {own: client.advertise() for own, client in scene.clients.items()}
    for own in (3, 4, 5):
        scene.server.hear(adverts[own])
    passed = scene.server.adverts()
    late = scene.clients[6].share(list(adverts.values()))
    with pytest.raises(EngineError, match="lost before"):
        scene.server.hear(late)
    shares = {own: scene.clients[own].share(passed[own]) for own in (3, 4, 5)}
    with pytest.raises(EngineError, match="one box for each"):
        scene.server.hear(replace(shares[3], boxes=shares[3].boxes[:1]))
    for own in (3, 4, 5):
        scene.server.hear(shares[own])
    scene.sealed = scene.server.sealed()
    sent = scene.clients[3].mask(scene.sealed[3], scene.vectors[3])
    with pytest.raises(EngineError, match="lost before"):
        scene.server.hear(replace(sent, sender=6))
    with pytest.raises(EngineError, match="no member"):
        scene.server.hear(replace(sent, sender=7))


def test_the_server_takes_the_shares_that_it_asked_for_and_no_others():
    scene = Scene("survivors", of=terms(5, 3))
    listed = masked_by(scene, (3, 4, 5, 6))
    for own in (3, 4, 5):
        scene.server.hear(scene.clients[own].consent(listed))
    scene.clients[6].consent(listed)
    agreed = scene.server.consents()
    said = {own: scene.clients[own].reveal(agreed) for own in listed}
    with pytest.raises(EngineError, match="lost before"):
        scene.server.hear(said[6])
    for changes in ({"seeds": said[3].seeds[:2]}, {"seeds": said[3].seeds[:3], "keys": said[3].seeds[3:]}):
        with pytest.raises(EngineError, match="other shares"):
            scene.server.hear(replace(said[3], **changes))
    for own in (3, 4, 5):
        scene.server.hear(said[own])
    assert int(scene.server.total()[0]) == sum(int(scene.vectors[own][0]) for own in listed) % 2**20


def test_each_direction_has_its_own_key():
    """With one key for both, two boxes under the nonce of zeros would give away the difference of their texts."""
    one, other = keys.Pair.fresh(os.urandom), keys.Pair.fresh(os.urandom)
    there = keys.seal(one, other.public, OF.digest, 3, 4, bytes(66))
    back = keys.seal(other, one.public, OF.digest, 4, 3, bytes(66))
    assert there[:66] != back[:66]
    assert keys.unseal(other, one.public, OF.digest, 3, 4, there) == bytes(66)


def test_signed_texts_name_everything_that_they_are_about():
    """One long-term key may stand for two positions, and sign in many sums."""
    advert = Scene("adverts").clients[3].advertise()
    changed = ({"sender": 4}, {"digest": bytes(32)}, {"seal_key": bytes(32)}, {"mask_key": bytes(32)})
    assert len({advert.text, *(replace(advert, **changes).text for changes in changed)}) == 5
    assert len({roll(bytes(32), (3, 4)), roll(OF.digest, (3, 4)), roll(OF.digest, (3, 5)), advert.text}) == 4
