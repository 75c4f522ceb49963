"""What crosses between coordinator and sites: letters, and the post that carries them.

A letter has an action, a few public fields and at most one vector. The post knows nothing of privacy, and nothing of
what it carries needs it to: a site decides what it answers, and what it answers was released or granted before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

from sordino.core import tables
from sordino.core.errors import BudgetRefused, ConfigError, EngineError, PrivacyError, SordinoError, VerificationError

T = TypeVar("T")

Field: TypeAlias = int | float | str | bytes

_SOON = 0.05
"""Seconds."""

BY = "by"
"""Field of a letter that was signed: the name of the key."""

REFUSED = "refused"
"""Action of an answer that says why nothing is sent."""


@dataclass(frozen=True)
class Letter:
    """One message.

    Args:
        action: What is asked, or answered.
        fields: Public facts: names, numbers, texts, bytes.
        vector: Shape (d,): a model, an update, masked integers.
    """

    action: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    vector: NDArray[Any] | None = None

    def text(self, name: str) -> str:
        """A field that is a text.

        Raises:
            EngineError: It is not there, or no text.
        """
        return self._field(name, str)

    def number(self, name: str) -> int:
        """A field that is a whole number; else as `text`."""
        return self._field(name, int)

    def content(self, name: str) -> bytes:
        """A field of bytes; else as `text`."""
        return self._field(name, bytes)

    def plain(self, name: str, hint: Any) -> Any:
        """A field that is JSON, as a value of the type that a hint names, see `tables.value`.

        Raises:
            EngineError: It is none.
        """
        try:
            return tables.value(hint, json.loads(self.text(name)), f"post.{name}")
        except (ValueError, RecursionError, ConfigError) as problem:
            raise EngineError.about("post", f"carries no {name}: {problem}", action=self.action) from None

    def _field(self, name: str, kind: type[T]) -> T:
        value = self.fields.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise EngineError.about(
                "post", f"lacks the field {name!r}", "do both ends run the same version?", action=self.action
            )
        return value


Answering: TypeAlias = Callable[[Letter], Letter]
"""A site, as whoever delivers its letters sees it. It never raises: what it refuses, it refuses by a letter."""


class Post(Protocol):
    """Carries letters to addresses."""

    def present(self) -> tuple[str, ...]:
        """Addresses that can be written to now."""
        ...

    def ask(self, letters: Mapping[str, Letter], timeout: float) -> Iterator[tuple[str, Letter]]:
        """Send letters, by address, and yield the answers as they arrive.

        Each address answers at most once. Who has not answered after `timeout` seconds never does: a late answer is
        dropped, whatever is asked next.
        """
        ...

    def send(self, letters: Mapping[str, Letter], timeout: float) -> Collection[str]:
        """Send letters, by address, and wait for nothing; to which addresses they went.

        Who has not read one after `timeout` seconds never does.
        """
        ...

    def mail(self) -> Mail:
        """For letters that are answered in their own time."""
        ...


class Mail(Protocol):
    """Letters on their way, and answers to them in whatever order they come."""

    def send(self, letters: Mapping[str, Letter], timeout: float) -> None:
        """Send letters, by address, that may take so many seconds."""
        ...

    def answers(self, wait: float) -> Iterator[tuple[str, Letter, Letter]]:
        """Address, letter and answer, of those that are there; if none is, of those that come first, in `wait` seconds.

        Each letter has one: in place of an answer that did not come in its time, a refusal.
        """
        ...


@dataclass
class Prompt:
    """Mail over a post that answers at once.

    Args:
        post: Carries the letters.
    """

    post: Post
    _here: list[tuple[str, Letter, Letter]] = field(default_factory=list)

    def send(self, letters: Mapping[str, Letter], timeout: float) -> None:
        answers = dict(self.post.ask(letters, timeout))
        self._here += [(at, letter, answers.get(at) or unanswered(timeout)) for at, letter in letters.items()]

    def answers(self, wait: float) -> Iterator[tuple[str, Letter, Letter]]:
        here, self._here = self._here, []
        if not here:  # nothing is on its way
            time.sleep(min(wait, _SOON))
        yield from here


@dataclass(frozen=True)
class Within:
    """A post inside one process: for tests, and for simulations of many sites."""

    sites: Mapping[str, Answering]

    def present(self) -> tuple[str, ...]:
        return tuple(self.sites)

    def ask(self, letters: Mapping[str, Letter], timeout: float) -> Iterator[tuple[str, Letter]]:
        del timeout
        for address, letter in letters.items():
            if address in self.sites:
                yield address, self.sites[address](letter)

    def send(self, letters: Mapping[str, Letter], timeout: float) -> Collection[str]:
        return [address for address, _ in self.ask(letters, timeout)]

    def mail(self) -> Mail:
        return Prompt(self)


KINDS: dict[str, type[SordinoError]] = {
    kind.__name__: kind for kind in (BudgetRefused, PrivacyError, VerificationError, EngineError)
}
"""Errors that keep their kind, and so their exit code, when a site tells them."""


def refusal(error: Exception) -> Letter:
    """A site's answer to a letter that it does not do.

    The text of our own errors is about public things. Any other error may quote a record, so only its kind is told.
    """
    if isinstance(error, SordinoError):
        names = [kind.__name__ for kind in type(error).__mro__]
        return Letter(REFUSED, {"kind": next((n for n in names if n in KINDS), "EngineError"), "why": str(error)})
    return Letter(REFUSED, {"kind": "EngineError", "why": f"failed with {type(error).__name__}; its own log says more"})


def unanswered(timeout: float) -> Letter:
    """In place of an answer that did not come."""
    return refusal(EngineError(f"did not answer within {timeout:g} s"))


def opened(letter: Letter, action: str, site: str) -> Letter:
    """The answer, if it is one to this action.

    Raises:
        SordinoError: The site refused: its own error, with its name.
        EngineError: It answers something else.
    """
    if letter.action == REFUSED:
        raise KINDS.get(letter.text("kind"), EngineError)(f"site {site!r} refuses: {letter.text('why')}")
    if letter.action != action:
        raise EngineError.about(f"site {site!r}", f"does not answer {action!r}", action=letter.action)
    return letter
