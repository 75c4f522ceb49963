"""The secrets that a server is given back, share by share."""

from __future__ import annotations

from sordino.core.errors import EngineError
from sordino.federation.secure import shamir
from sordino.federation.secure.messages import Revealed
from sordino.federation.secure.terms import Terms


class Secrets:
    """Shares by owner. A member's seed comes together, or its key; who asks for the other gets an error.

    Args:
        terms: Of the sum.
    """

    def __init__(self, terms: Terms) -> None:
        self._needed = terms.needed
        self._seeds: dict[int, dict[int, int]] = {}
        self._keys: dict[int, dict[int, int]] = {}
        self._weights: dict[tuple[int, ...], dict[int, int]] = {}  # one entry where all pairs mask

    def add(self, message: Revealed) -> None:
        """Keep the shares of one client, or none of them.

        Raises:
            EngineError: One is not a share.
        """
        point = message.sender + 1
        seeds = [(owner, shamir.from_bytes(share)) for owner, share in message.seeds]
        private = [(owner, shamir.from_bytes(share)) for owner, share in message.keys]
        for owner, share in seeds:
            self._seeds.setdefault(owner, {})[point] = share
        for owner, share in private:
            self._keys.setdefault(owner, {})[point] = share

    def seed(self, owner: int) -> bytes:
        """The self-mask's seed of a survivor.

        Raises:
            EngineError: Fewer than a quorum of its shares are there, or they give no seed.
        """
        return self._joined(owner, self._seeds)

    def private(self, owner: int) -> bytes:
        """The mask key of a member that is gone.

        Raises:
            EngineError: Fewer than a quorum of its shares are there, or they give no key.
        """
        return self._joined(owner, self._keys)

    def _joined(self, owner: int, shares: dict[int, dict[int, int]]) -> bytes:
        own = shares.get(owner, {})
        if len(own) < self._needed:
            raise EngineError.about("secure", f"has fewer than {self._needed} shares", member=owner, shares=len(own))
        points = tuple(sorted(own)[: self._needed])
        if points not in self._weights:
            self._weights[points] = shamir.weights(points)
        secret = shamir.joined(own, self._weights[points])
        if secret >> 256:
            raise EngineError.about("secure", "the shares give no secret", member=owner)
        return secret.to_bytes(32, "big")
