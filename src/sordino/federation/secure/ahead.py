"""One secure sum after another: while one ends the next begins, and what both ask of a member goes in one letter.

this sum   advertise   share   mask        (consent)   reveal
the next                       advertise               share    mask …

They are two sums: each has its own terms, keys, shares and signatures, and each member goes through the stages of each
in their order, once. Keys and shares say nothing of a vector, so it does not matter that they come before the model is
known. A round takes two letters to each member, in place of four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from sordino.federation.secure.client import STAGES
from sordino.federation.secure.driving import Drive, Heard
from sordino.federation.secure.messages import Verify
from sordino.federation.secure.terms import Terms

BESIDE = {"mask": "advertise", "reveal": "share"}
"""By stage of a sum, the stage of the next one that goes with it."""

AskBoth = Callable[[str, Mapping[int, bytes], Mapping[int, bytes]], Iterable[tuple[int, bytes, bytes | None]]]
"""A stage, each member's request in it, and some members' request in the next sum's stage; their answers to both."""


class Ahead:
    """The server's side of one sum after another. Of the next one it keeps what all members have begun, or nothing."""

    def __init__(self) -> None:
        self._begun: Drive | None = None
        self._standing: object = None

    def summed(
        self,
        terms: Terms,
        following: Terms | None,
        verify: Verify,
        ask: AskBoth,
        heard: Heard = lambda *_: None,
        *,
        standing: object = None,
    ) -> tuple[NDArray[np.uint64], tuple[int, ...]]:
        """The sum of the vectors of all who sent theirs, and who they are.

        Args:
            terms: Of the sum.
            following: Of the next one, if there is one.
            verify: The server's own checks of signatures.
            ask: Carries requests.
            heard: See `Drive`.
            standing: Changes when a member may have forgotten what it has begun: then nothing is taken over.

        Returns:
            The sum modulo 2^bits, shape (size,), and the survivors.

        Raises:
            EngineError: Fewer than the threshold are left in some stage; nothing was unmasked.
        """
        begun, self._begun = self._begun, None
        drive, stages = Drive(terms, verify, heard), list(STAGES)
        if begun is not None and begun.terms == terms and self._standing == standing:
            drive, stages = begun, list(STAGES[2:])
            drive.heard = heard
        coming = None if following is None else Drive(following, verify)
        for stage in stages:
            requests = drive.requests(stage)
            beside = BESIDE.get(stage)
            both = {} if coming is None or beside is None else coming.requests(beside)
            for member, answer, other in ask(stage, requests, both) if requests else ():
                drive.hear(stage, member, answer)
                if coming is not None and beside is not None and other is not None:
                    coming.hear(beside, member, other)
            # With somebody missing it begins anew next time: a member that was away for a moment is not left out.
            if coming is not None and beside is not None and not coming.everybody:
                coming = None
        total = drive.total()
        self._begun, self._standing = coming, standing
        return total
