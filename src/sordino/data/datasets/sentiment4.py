"""Sentiment in four domains: tweets, product reviews, film reviews and editorials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sordino.core.checks import non_negative
from sordino.core.errors import ConfigError
from sordino.data.archives import base, members, within
from sordino.data.datasets import datasets
from sordino.data.fetch import Archive, located
from sordino.data.texts import Texts

Rated: TypeAlias = tuple[str, float, str]
"""Domain, mean rating and text."""

WHERE = "dataset.sentiment4"
INNER = "hutto_ICWSM_2014.tar.gz"
DOMAINS = {
    "tweets_GroundTruth.txt": "tweets",
    "amazonReviewSnippets_GroundTruth.txt": "amazon",
    "movieReviewSnippets_GroundTruth.txt": "movie",
    "nytEditorialSnippets_GroundTruth.txt": "nyt",
}


@datasets.register("sentiment4")
@dataclass(frozen=True)
class Sentiment4:
    """Sentiment in four domains: 4,200 tweets, 3,708 Amazon, 10,605 film and 5,190 New York Times snippets, rated.

    The natural clients are the domains. Twenty people rated each text from -4 to 4; the label is 1 where their mean
    is above 0. Texts whose mean lies within `neutral` of 0 are left out.

    Args:
        path: The source archive of vaderSentiment, the archive inside it, or the folder of the four files.
        neutral: Half the width of the band around 0 that is left out, >= 0.
        domains: Which of tweets, amazon, movie and nyt; all where None.
        balance: Keep as many texts of the commoner label as there are of the other, in every domain: with clipped
            gradients all examples pull alike, so a model's threshold would otherwise drift to the commoner label.
    """

    example: ClassVar[dict[str, Any]] = {"neutral": 0.5}
    source: ClassVar[str] = "Hutto and Gilbert (2014), VADER, ICWSM; PyPI vaderSentiment 3.3.2, source archive"
    licence: ClassVar[str] = "MIT (package and ratings; the texts are their authors')"
    fetch: ClassVar[Archive | None] = Archive(
        kind="pypi-sdist",
        package="vaderSentiment",
        version="3.3.2",
        file="vaderSentiment-3.3.2.tar.gz",
        sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        size_bytes=2_466_783,
        members=(f"additional_resources/{INNER}",),
    )
    path: str | None = None
    neutral: float = 0.5
    domains: tuple[str, ...] | None = None
    balance: bool = False

    def __post_init__(self) -> None:
        non_negative(WHERE, neutral=self.neutral)
        for domain in self.domains or ():
            if domain not in DOMAINS.values():
                raise ConfigError.about(WHERE, "is no domain", f"known: {', '.join(DOMAINS.values())}", domain=domain)

    def load(self) -> Texts:
        """The rated texts, domain by domain in the files' order."""
        rated = [entry for entry in self._rated() if abs(entry[1]) >= self.neutral and entry[1] != 0]
        if self.balance:
            rated = _balanced(rated)
        if not rated:
            raise ConfigError.about(WHERE, "leaves no text", "lower it", neutral=self.neutral)
        return Texts(
            records=tuple(text for _, _, text in rated),
            y=np.array([score > 0 for _, score, _ in rated], np.int64),
            classes=2,
            client=np.array([domain for domain, _, _ in rated]),
            public=True,
            source=self.source,
            licence=self.licence,
        ).validated(WHERE)

    def _rated(self) -> Iterator[Rated]:
        files = self._files()
        for name, domain in DOMAINS.items():
            if self.domains is not None and domain not in self.domains:
                continue
            for number, line in enumerate(files[name].decode("utf-8-sig").splitlines(), start=1):
                try:
                    _, score, text = line.split("\t")
                    yield domain, float(score), text.strip()
                except ValueError:
                    rule = f"line {number} is not id, rating and text"
                    raise ConfigError.about(WHERE, rule, "get the file again", file=name) from None

    def _files(self) -> dict[str, bytes]:
        path = located("sentiment4", self.path, self.fetch)
        found = members(WHERE, path, lambda name: base(name) in (*DOMAINS, INNER))
        found = {base(name): content for name, content in found.items()}
        if INNER in found:
            inner = within(WHERE, found[INNER], lambda name: base(name) in DOMAINS)
            found = {base(name): content for name, content in inner.items()}
        for name in DOMAINS:
            if name not in found:
                raise ConfigError.about(WHERE, f"lacks the file {name!r}", "give the archive", path=path.name)
        return found


def _balanced(rated: list[Rated]) -> list[Rated]:
    """The first of both labels in every domain, as many of each."""
    counts = Counter((domain, score > 0) for domain, score, _ in rated)
    seen: Counter[tuple[str, bool]] = Counter()
    kept = []
    for entry in rated:
        domain, score, _ = entry
        seen[domain, score > 0] += 1
        if seen[domain, score > 0] <= counts[domain, score <= 0]:
            kept.append(entry)
    return kept
