"""All clients in this process, one after another or, where the work can be shared, together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sordino.core.errors import VerificationError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Engine, Summing, Together, Work, engines
from sordino.federation.secure import Client
from sordino.federation.secure.driving import Party, summed


@engines.register("inprocess")
@dataclass(frozen=True)
class InProcess(Engine):
    """Run the clients here, each when its update is asked for, or several at once where the work is offered so.

    Memory does not grow with the cohort: those who work together come in groups of limited size. A client's error is
    this program's error, so it is raised, not skipped.
    """

    example: ClassVar = {}

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        if together is not None:
            yield from together(cohort, model.copy(), plan)
            return
        for client in cohort:
            yield work(int(client), model.copy(), plan)

    def summed(self, plan: RoundPlan, sums: Summing, model: Vector) -> NDArray[np.uint64]:
        del plan
        parties = {}
        keys = {client: Ed25519PrivateKey.generate() for client in sums.terms.members}

        def verify(position: int, message: bytes, signature: str) -> None:
            try:
                keys[position].public_key().verify(bytes.fromhex(signature), message)
            except InvalidSignature as error:
                raise VerificationError.about("secure", "is forged", member=position) from error

        for client in sums.terms.members:
            sign = partial(_signed, keys[client])
            parties[client] = Party(
                Client(sums.terms, client, sign=sign, verify=verify), partial(sums.share, client, model.copy())
            )

        def ask(stage: str, requests: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
            for client, request in requests.items():
                yield client, parties[client].answer(stage, request)

        return summed(sums.terms, verify, ask)[0]


def _signed(key: Ed25519PrivateKey, message: bytes) -> str:
    return key.sign(message).hex()
