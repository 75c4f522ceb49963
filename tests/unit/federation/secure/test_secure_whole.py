"""Consent that comes with the vector: what is left out where nobody is missing, and what a server could make of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from secure_crowd import crowd, plain, signature, stripped, terms, vectors, verify

from sordino.core.errors import EngineError, PrivacyError, SordinoError
from sordino.federation.secure import STAGES, Client, Consent, Server, Terms, keys, shamir
from sordino.federation.secure.driving import Party, summed
from sordino.federation.secure.messages import roll, whole


class Sent:
    """All have sent their vectors to a server that keeps what it hears."""

    def __init__(self, of: Terms, kind: type[Client] = Client) -> None:
        self.terms, self.clients, server = of, crowd(of, kind), Server(of, verify=verify)
        for client in self.clients.values():
            server.hear(client.advertise())
        self.adverts = server.adverts()
        for own, client in self.clients.items():
            server.hear(client.share(self.adverts[own]))
        sealed, own = server.sealed(), vectors(of)
        self.masked = {member: client.mask(sealed[member], own[member]) for member, client in self.clients.items()}
        self.server = server

    @property
    def wholes(self) -> list[Consent]:
        """What came with the vectors."""
        return [Consent(self.terms.digest, own, masked.signature) for own, masked in self.masked.items()]


class RevealsAgain(Client):
    """Forgets that it has revealed, and so reveals under both lists that it signed."""

    def reveal(self, consents):
        kept, stage = dict(self._shares), self._stage
        said = super().reveal(consents)
        self._shares, self._stage = kept, stage
        return said


def told(of: Terms, kind: type[Client], whole_to, shorter_to) -> tuple[Sent, list, list]:
    """What a server hears that tells some that nobody is missing, and others that the last one is."""
    sent, shorter = Sent(of, kind), of.members[:-1]
    seeds = [sent.clients[own].reveal(sent.wholes) for own in whole_to]
    agreed, private = [], []
    try:
        agreed = [sent.clients[own].consent(shorter) for own in shorter_to]
        private = [sent.clients[own].reveal(agreed) for own in shorter_to]
    except SordinoError:
        if kind is RevealsAgain:
            raise
    return sent, seeds, private


def test_a_client_that_reveals_under_both_lists_gives_a_vector_away():
    of = terms(4, 3)
    *others, victim = of.members
    sent, seeds, private = told(of, RevealsAgain, others, others)
    given = [{m.sender + 1: shamir.from_bytes(dict(m.seeds)[victim]) for m in seeds}]
    given += [{m.sender + 1: shamir.from_bytes(dict(m.keys)[victim]) for m in private}]
    seed, key = (shamir.joined(each, shamir.weights(list(each))).to_bytes(32, "big") for each in given)
    pair, public = keys.Pair.of(key), {advert.sender: advert.mask_key for advert in sent.adverts[victim]}
    below = [keys.mask_key(pair, public[own], of.digest, own, victim) for own in others]
    read = stripped(sent.masked[victim].vector(of), of.bits, add=[seed], subtract=below)
    np.testing.assert_array_equal(read, vectors(of)[victim])
    sent = Sent(of)
    sent.clients[3].reveal(sent.wholes)
    with pytest.raises(PrivacyError, match="was done"):
        sent.clients[3].consent(others)


@pytest.mark.parametrize(("clients", "threshold"), [(4, 3), (5, 3)])
def test_whomever_it_tells_what_a_server_gets_one_secret_of_one_client_at_most(clients, threshold):
    of = terms(clients, threshold)
    *others, victim = of.members
    opened = set()
    for split in itertools.product((True, False), repeat=len(others)):
        whole_to = [own for own, full in zip(others, split, strict=True) if full]
        _, seeds, private = told(of, Client, whole_to, [own for own in others if own not in whole_to])
        found = [sum(victim in dict(m.seeds) for m in seeds), sum(victim in dict(m.keys) for m in private)]
        assert min(found) < threshold
        opened |= {place for place, count in enumerate(found) if count >= threshold}
    assert opened == {0, 1}  # either alone is what the server is to get


def test_a_signature_of_one_kind_is_none_of_the_other():
    of = terms(4, 3)

    def by(text) -> list[Consent]:
        return [Consent(of.digest, own, signature(own, text(of.digest, of.members))) for own in of.members]

    with pytest.raises(EngineError, match="not by its sender"):
        Sent(of).clients[3].reveal(by(roll))
    sent = Sent(of)
    sent.clients[3].consent(of.members)
    with pytest.raises(EngineError, match="not by its sender"):
        sent.clients[3].reveal(by(whole))
    Sent(of).clients[3].reveal(by(whole))


def test_too_few_signatures_and_signatures_under_another_list_open_nothing():
    of = terms(4, 3)
    sent = Sent(of)
    with pytest.raises(PrivacyError, match="threshold"):
        sent.clients[3].reveal(sent.wholes[:2])
    shorter = [Consent(of.digest, own, signature(own, whole(of.digest, of.members[:3]))) for own in of.members]
    with pytest.raises(EngineError, match="not by its sender"):
        Sent(of).clients[4].reveal(shorter)


def test_nobody_reveals_before_it_has_sent_and_on_a_circle_not_without_consent():
    early = crowd(terms(4, 3))[3]
    with pytest.raises(PrivacyError, match="turn"):
        early.reveal([])
    circle = Sent(terms(8, 5, degree=4, quorum=4))
    assert {masked.signature for masked in circle.masked.values()} == {""}
    with pytest.raises(PrivacyError, match="turn"):
        circle.clients[3].reveal(circle.wholes)


def test_a_vector_with_consent_to_something_else_is_not_counted():
    of = terms(4, 3)
    sent = Sent(of)
    lie = Consent(of.digest, 6, signature(6, whole(of.digest, (4, 5, 6))))
    for own, masked in sent.masked.items():
        if own == 6:
            with pytest.raises(EngineError, match="not by its sender"):
                sent.server.hear(type(masked)(masked.digest, own, masked.packed, lie.signature))
        else:
            sent.server.hear(masked)
    listed = sent.server.survivors()
    assert listed == (3, 4, 5)
    assert not sent.server.agreed
    for own in listed:
        sent.server.hear(sent.clients[own].consent(listed))
    agreed = sent.server.consents()
    for own in listed:
        sent.server.hear(sent.clients[own].reveal(agreed))
    np.testing.assert_array_equal(sent.server.total(), plain(of, [vectors(of)[own] for own in listed]))


class Words:
    """Stands where a share of a noised sum would."""

    def __init__(self, words) -> None:
        self._words = words

    def masked(self, mask):
        return mask(self._words)


@pytest.mark.parametrize(
    ("of", "lost", "asked"),
    [
        (terms(4, 3), None, ["advertise", "share", "mask", "reveal"]),
        (terms(4, 3), "mask", list(STAGES)),
        (terms(4, 3), "reveal", ["advertise", "share", "mask", "reveal"]),
        (terms(8, 5, degree=4, quorum=4), None, list(STAGES)),
    ],
)
def test_consent_is_asked_for_where_somebody_is_missing(of, lost, asked):
    own, stages = vectors(of), []
    parties = {member: Party(client, lambda at=member: Words(own[at])) for member, client in crowd(of).items()}

    def ask(stage, requests):
        stages.append(stage)
        for member, request in requests.items():
            if member != 3 or lost is None or STAGES.index(stage) < STAGES.index(lost):
                yield member, parties[member].answer(stage, request)

    total, survivors = summed(of, verify, ask)
    assert stages == asked
    assert survivors == (of.members[1:] if lost == "mask" else of.members)
    np.testing.assert_array_equal(total, plain(of, [own[member] for member in survivors]))
