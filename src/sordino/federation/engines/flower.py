"""Clients in processes of their own, on any machine: letters over Flower's grid, and what comes of them.

Flower carries and keeps order; nothing in it clips, weighs, samples or adds noise. Who does not answer in time, or
answers with something that does not hold, gives nothing: the round's divisor is public and stays the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import EngineError, SordinoError
from sordino.core.types import RoundPlan, Update, Vector
from sordino.federation.engines import Announced, Engine, Summing, Together, Work
from sordino.federation.post import Letter, Mail, Post, refusal, unanswered
from sordino.federation.secure.ahead import Ahead
from sordino.privacy.permits import Line

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

ACTION, VECTOR, FIELDS = "letter", "vector", "fields"
"""Name of the one action that apps answer, and of a message's two records."""

SHAPE, TYPE = "vector.shape", "vector.type"
"""Beside a short vector, which travels among the fields."""

SHORT = 2**20
"""Bytes. Each part of a message is a request to Flower's server, of 5 to 10 ms; an array is three of them."""

NODE_UNAVAILABLE = 5
"""Flower's code, `ErrorCode.NODE_UNAVAILABLE`, for a node without signs of life."""


class Correspondence(Protocol):
    """What is written to a client in a round, and what its answers are worth."""

    def letter(self, plan: RoundPlan, client: int, announced: Announced) -> tuple[str, Letter] | None:
        """A client's address and letter; None if it cannot be written to now."""
        ...

    def begin(
        self, plan: RoundPlan, client: int, announced: Announced, lines: Sequence[Line]
    ) -> tuple[str, Letter] | None:
        """As `letter`, for a later round whose update the client may work at from now on; None if it does already.

        Args:
            plan: The later round.
            client: Whose update.
            announced: What it starts from.
            lines: What the later round charges.
        """
        ...

    def unsent(self, plan: RoundPlan, client: int) -> None:
        """What `begin` gave did not reach the client: it begins when it is asked."""
        ...

    def read(self, plan: RoundPlan, client: int, answer: Letter, size: int) -> Update:
        """The update in an answer, if it has this length.

        Raises:
            SordinoError: It is a refusal, or does not hold.
        """
        ...

    def request(
        self, plan: RoundPlan, client: int, stage: str, content: bytes, beside: bytes | None, announced: Announced
    ) -> tuple[str, Letter] | None:
        """As `letter`, for one stage of a secure sum, and one of the next round's sum beside it."""
        ...

    def content(self, plan: RoundPlan, client: int, answer: Letter) -> tuple[bytes, bytes | None]:
        """What an answer says in a stage of a secure sum, and in that beside it, if it does; raises as `read`."""
        ...

    def standing(self) -> object:
        """Another value once a client has joined anew, and so may have forgotten what it began."""
        ...

    def believe(self, client: int, message: bytes, signature: str) -> None:
        """Return only if the client signed this for a secure sum.

        Raises:
            VerificationError: It did not.
        """
        ...

    def closed(self, plan: RoundPlan, silent: Mapping[int, str]) -> None:
        """All have answered that ever will; the silent ones with the reason.

        Raises:
            SordinoError: They are too many, and the round is not to be.
        """
        ...


@dataclass(frozen=True)
class Flower(Engine):
    """Ask every client of the cohort by a letter, all at once, and yield the updates as they arrive.

    Args:
        post: Carries the letters.
        correspondence: What they say.
        timeout: How long a round waits for an answer, in seconds.
        announced: What a round starts from, as its setting says.
        ahead: What secure sums have begun for the next round.
    """

    example: ClassVar[Mapping[str, Any]] = {}
    post: Post
    correspondence: Correspondence
    timeout: float
    announced: Announced | None = None
    ahead: Ahead = field(default_factory=Ahead)

    def seeing(self, announced: Announced) -> Engine:
        return replace(self, announced=announced)

    def run(
        self, plan: RoundPlan, cohort: NDArray[np.int64], model: Vector, work: Work, together: Together | None = None
    ) -> Iterator[Update]:
        del work, together  # every site has its own
        announced = self.starting(model)
        for _, update in self.gathered(plan, {int(client): announced for client in cohort}):
            yield update

    def gathered(self, plan: RoundPlan, announced: Mapping[int, Announced]) -> Iterator[tuple[int, Update]]:
        """The updates of clients, each from what is announced to it, as they arrive."""
        silent = dict.fromkeys(announced, "cannot be reached")
        letters = {client: self.correspondence.letter(plan, client, start) for client, start in announced.items()}
        for client, answer in self.asked(letters, silent):
            try:
                update = self.correspondence.read(plan, client, answer, announced[client].size)
            except SordinoError as problem:
                silent[client] = str(problem)
                continue
            del silent[client]
            yield client, update
        self.correspondence.closed(plan, silent)

    def starting(self, model: Vector) -> Announced:
        """What a round that starts from this model announces; where it trains a part, the rest comes with it."""
        announced = self.announced or Announced(model, {}, len(model))
        return replace(announced, model=model) if model.shape == announced.model.shape else announced

    def asked(
        self, written: Mapping[int, tuple[str, Letter] | None], silent: dict[int, str]
    ) -> Iterator[tuple[int, Letter]]:
        """Answers to letters by client, as they arrive. Who is written to is silent until it answers."""
        clients, letters = {}, {}
        for client, addressed in written.items():
            if addressed is not None:
                address, letters[address] = addressed
                clients[address] = client
                silent[client] = f"did not answer within {self.timeout:g} s"
        for address, answer in self.post.ask(letters, self.timeout):
            yield clients[address], answer

    def summed(self, plan: RoundPlan, sums: Summing, model: Vector) -> NDArray[np.uint64]:
        announced, written = self.starting(model), self.correspondence
        silent = dict.fromkeys(sums.terms.members, "cannot be reached")

        def ask(
            stage: str, requests: Mapping[int, bytes], beside: Mapping[int, bytes]
        ) -> Iterator[tuple[int, bytes, bytes | None]]:
            letters = {
                client: written.request(plan, client, stage, own, beside.get(client), announced)
                for client, own in requests.items()
            }
            for client, answer in self.asked(letters, silent):
                try:
                    content, other = written.content(plan, client, answer)
                except SordinoError as problem:
                    silent[client] = str(problem)
                    continue
                silent[client] = f"answered {stage!r} last"
                yield client, content, other

        def heard(stage: str, client: int, why: str) -> None:
            silent[client] = f"{stage}: {why}"

        try:
            total, survivors = self.ahead.summed(
                sums.terms, sums.following, written.believe, ask, heard, standing=written.standing()
            )
        except EngineError as problem:
            why = "; ".join(f"member {client}: {reason}" for client, reason in silent.items())
            raise EngineError(f"{problem}; {why}") from None
        written.closed(plan, {client: why for client, why in silent.items() if client not in survivors})
        return total


@dataclass(frozen=True)
class GridPost:
    """Letters as Flower messages. Addresses are node numbers.

    Args:
        grid: Flower's, or one of this process.
        poll: How soon it is asked for answers, in seconds, and then less and less often.
        seldom: How often at least. Flower's own way to wait asks every three seconds.
    """

    grid: Grid
    poll: float = 0.05
    seldom: float = 1.0

    def present(self) -> tuple[str, ...]:
        return tuple(str(node) for node in self.grid.get_node_ids())

    def ask(self, letters: Mapping[str, Letter], timeout: float) -> Iterator[tuple[str, Letter]]:
        sent = self.pushed(letters, timeout)
        end, pause = time.monotonic() + timeout, self.poll
        while sent and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(sent)):
                address = sent.pop(reply.metadata.reply_to_message_id, "")
                if address:
                    yield address, letter_of(reply)
            if sent:
                time.sleep(pause)
                pause = min(1.2 * pause, self.seldom)

    def send(self, letters: Mapping[str, Letter], timeout: float) -> Collection[str]:
        return set(self.pushed(letters, timeout).values())

    def mail(self) -> Mail:
        return GridMail(self)

    def pushed(self, letters: Mapping[str, Letter], timeout: float) -> dict[str, str]:
        """Send letters; the address of each, by the number of its message."""
        from flwr.app import MessageType

        online, sent = set(self.present()), {}
        for address, letter in letters.items():
            if address in online:  # to any other, Flower would keep the message until it is back
                message = message_of(letter, MessageType.QUERY, int(address), timeout)
                sent.update(dict.fromkeys(self.grid.push_messages([message]), address))
        return sent


@dataclass(frozen=True)
class _Sent:
    address: str
    letter: Letter
    end: float
    timeout: float


@dataclass
class GridMail:
    """Letters as Flower messages, answered in their own time.

    Args:
        post: Sends them.
    """

    post: GridPost
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _unsent: list[tuple[str, Letter]] = field(default_factory=list)

    def send(self, letters: Mapping[str, Letter], timeout: float) -> None:
        pushed, end = self.post.pushed(letters, timeout), time.monotonic() + timeout
        self._sent |= {number: _Sent(address, letters[address], end, timeout) for number, address in pushed.items()}
        self._unsent += [(address, letters[address]) for address in letters.keys() - pushed.values()]

    def answers(self, wait: float) -> Iterator[tuple[str, Letter, Letter]]:
        end, pause = time.monotonic() + wait, self.post.poll
        while True:
            here = [*self._returned(), *self._come(), *self._overdue()]
            if here or time.monotonic() >= end:
                yield from here
                return
            time.sleep(pause)
            pause = min(1.2 * pause, self.post.seldom)

    def _returned(self) -> list[tuple[str, Letter, Letter]]:
        unsent, self._unsent = self._unsent, []
        return [(address, letter, refusal(EngineError("cannot be reached"))) for address, letter in unsent]

    def _come(self) -> Iterator[tuple[str, Letter, Letter]]:
        for reply in self.post.grid.pull_messages(list(self._sent)) if self._sent else ():
            sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
            if sent is not None:
                yield sent.address, sent.letter, letter_of(reply)

    def _overdue(self) -> Iterator[tuple[str, Letter, Letter]]:
        now = time.monotonic()
        for number, sent in list(self._sent.items()):
            if now >= sent.end:
                del self._sent[number]
                yield sent.address, sent.letter, unanswered(sent.timeout)


def message_of(letter: Letter, kind: str, node: int, ttl: float) -> Message:
    """A letter to a node. It is dropped after `ttl` seconds, wherever it then is."""
    from flwr.app import Message

    return Message(_content(letter), dst_node_id=node, message_type=f"{kind}.{ACTION}", ttl=ttl)


def reply_of(letter: Letter, asked: Message) -> Message:
    """A letter in answer to a message."""
    from flwr.app import Message

    return Message(_content(letter), reply_to=asked)


def _content(letter: Letter) -> Any:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    fields: dict[str, Any] = {ACTION: letter.action, **letter.fields}
    vector = letter.vector
    if vector is None or vector.nbytes > SHORT:
        whole = {} if vector is None else {VECTOR: ArrayRecord({VECTOR: Array(vector)})}
        return RecordDict({FIELDS: ConfigRecord(fields), **whole})
    fields |= {VECTOR: vector.tobytes(), SHAPE: list(vector.shape), TYPE: vector.dtype.str}
    return RecordDict({FIELDS: ConfigRecord(fields)})


def _vector(fields: dict[str, Any], arrays: Any) -> NDArray[Any] | None:
    """The vector of a message, taken out of its fields if it lies there."""
    if VECTOR not in fields:
        return arrays[VECTOR][VECTOR].numpy() if VECTOR in arrays else None
    content, kind = fields.pop(VECTOR), np.dtype(fields.pop(TYPE))
    if kind.kind not in "fui":
        raise TypeError(kind)
    return np.frombuffer(content, kind).reshape(fields.pop(SHAPE)).copy()


def letter_of(message: Message) -> Letter:
    """The letter in a message, or a refusal if there is none: whoever sent it, nothing but an answer can come of it."""
    if message.has_error():
        if message.error.code == NODE_UNAVAILABLE:
            return refusal(EngineError("its node is gone: killed, or cut off"))
        return refusal(EngineError.about("flower", message.error.reason or "failed", code=message.error.code))
    letter = None
    # Bytes of a stranger, which Flower and numpy read: there is no list of what they raise.
    with contextlib.suppress(Exception):
        fields: dict[str, Any] = dict(message.content.config_records[FIELDS])
        vector = _vector(fields, message.content.array_records)
        letter = Letter(str(fields.pop(ACTION)), fields, vector)
    if letter is None or not (letter.vector is None or isinstance(letter.vector, np.ndarray)):
        return refusal(EngineError.about("flower", "carries no letter", "do both ends run the same version?"))
    return letter
