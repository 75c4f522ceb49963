"""Who is where: a site's address is believed when the site has signed a number drawn for the occasion."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sordino.core.errors import EngineError, SordinoError, VerificationError
from sordino.experiment.remote.signing import TO
from sordino.experiment.site.member import greeting
from sordino.federation.post import Letter, Post, opened
from sordino.ledger.keys import VerifyKey

QUIET_S = 5.0
"""How long it waits without saying so."""

MOST = 5
"""Reasons that an error quotes: a stranger may have many nodes."""


@dataclass(frozen=True)
class Greeting:
    """What a site says of itself.

    Args:
        seen: How many events of the coordinator's ledger it has seen.
        note: The last checkpoint that it keeps; empty if none.
        handed: The run's charges that it has handed over.
        charged: All charges of the run's rounds that its ledger knows.
    """

    seen: int
    note: str
    handed: tuple[str, ...]
    charged: tuple[str, ...]


@dataclass(frozen=True)
class Roll:
    """The sites of a federation, as far as they have been found.

    Args:
        post: Carries letters.
        keys: Every site's public key, by its name.
        timeout: How long to wait for an answer that costs no training, in seconds.
        patience: For one that may cost as much, such as loading a model, or judging it.
        wait: How long to wait at the end of a run for sites that are away, in seconds.
        addresses: Where each site was found.
        unheard: Why what came from an address was not believed, for whoever looks for a site that is missing.
        tell: Told whom it waits for.
    """

    post: Post
    keys: Mapping[str, VerifyKey]
    timeout: float = 60.0
    patience: float = 3600.0
    wait: float = 0.0
    addresses: dict[str, str] = field(default_factory=dict)
    unheard: dict[str, str] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _: None

    def greet(self, names: Iterable[str], run: str, origin: str, timeout: float) -> dict[str, Greeting]:
        """Ask whoever is there who they are; those of the names that answered in time, with what they say."""
        wanted, nonce = set(names), os.urandom(32)
        taken = {address for name, address in self.addresses.items() if name not in wanted}
        letter = Letter("hello", {"run": run, "origin": origin, "nonce": nonce})
        letters = {address: letter for address in self.post.present() if address not in taken}
        found: dict[str, Greeting] = {}
        for address, answer in self.post.ask(letters, timeout):
            try:
                name, said = self._believed(opened(answer, "hello", address), nonce)
            except SordinoError as problem:  # somebody else's node, or one that lies about its name: not one of ours
                self.unheard[address] = str(problem)
                continue
            self.unheard.pop(address, None)
            if name in wanted:
                self.addresses[name] = address
                found[name] = said
        return found

    def gather(self, names: Iterable[str], run: str, origin: str, *, wait: float, least: int) -> dict[str, Greeting]:
        """Greet until all of the names have answered, or `wait` seconds have passed.

        Raises:
            EngineError: Fewer than `least` have answered by then.
        """
        missing, end = set(names), time.monotonic() + wait
        found: dict[str, Greeting] = {}
        with self._saying(missing):
            while missing:
                answered = self.greet(missing, run, origin, self.timeout)
                found |= answered
                missing -= answered.keys()
                if missing and time.monotonic() > end:
                    if len(found) >= least:
                        break
                    heard = "; ".join(list(self.unheard.values())[:MOST])
                    raise EngineError.about(
                        "run",
                        f"have not answered within {wait:g} s{' (heard: ' * bool(heard)}{heard}{')' * bool(heard)}",
                        "are they running, and are their keys and names known here? `sordino deploy check`",
                        sites=sorted(missing),
                    )
                if missing:
                    time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        return found

    @contextmanager
    def _saying(self, missing: set[str]) -> Iterator[None]:
        """Say whom it waits for if it takes long: a node that is gone is asked until Flower's server has noticed."""

        def say() -> None:
            self.tell(f"waiting for {', '.join(sorted(missing - self.addresses.keys()) or sorted(missing))}")

        soon = threading.Timer(QUIET_S, say)
        soon.start()
        try:
            yield
        finally:
            soon.cancel()

    def ask(self, letters: Mapping[str, Letter], *, patient: bool = False) -> dict[str, Letter]:
        """The answers to letters by site, refusals raised.

        Args:
            letters: By site.
            patient: Whether an answer may take as long as training does.

        Raises:
            SordinoError: A site refuses; its own error with its name.
            EngineError: A site does not answer.
        """
        timeout = self.patience if patient else self.timeout
        by_address = {self.addresses[name]: name for name in letters}
        answers = {}
        for address, answer in self.post.ask({a: _to(name, letters[name]) for a, name in by_address.items()}, timeout):
            name = by_address[address]
            answers[name] = opened(answer, letters[name].action, name)
        silent = sorted(letters.keys() - answers.keys())
        if silent:
            raise EngineError.about("run", f"have not answered within {timeout:g} s", sites=silent)
        return answers

    def _believed(self, answer: Letter, nonce: bytes) -> tuple[str, Greeting]:
        name = answer.text("silo")
        if name not in self.keys:
            raise VerificationError.about("hello", "is no site of this federation", site=name)
        told = {field: value for field, value in answer.fields.items() if field != "signature"}
        self.keys[name].verify(greeting(nonce, told), answer.text("signature"))
        names = (answer.plain(field, tuple[str, ...]) for field in ("handed", "charged"))
        return name, Greeting(answer.number("seen"), answer.text("note"), *names)


def _to(name: str, letter: Letter) -> Letter:
    """A letter that only the silo of this name may answer."""
    return replace(letter, fields={**letter.fields, TO: name})


Telling = Callable[[str], None]
"""Told in words what happens at the sites, for whoever runs the experiment."""
