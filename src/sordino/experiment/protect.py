"""Protect a file of texts that must leave a site, and state what that promises.

embed    embeddings ──► reserve ──► noise ──► commit ──► file ──► statement      an account pays per release
words    words ──► file ──► statement                    no account: the promise is not one about records
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.core import checks
from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.experiment.protected_file import Job, published, put, sha256
from sordino.federation.mechanisms.gaussian import Gaussian
from sordino.ledger import Account, Ledger, amounts
from sordino.local.text.noise import noise_multiplier
from sordino.local.text.policy import Policy
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.doors import Door
from sordino.privacy.noise import NoiseSource, SystemNoise
from sordino.privacy.permits import Line


@dataclass(frozen=True)
class Embedding:
    """How embeddings are made and what each may cost.

    Args:
        base: The public model, as the user named it.
        folder: Where it lies.
        epsilon: Of one release, for each text.
        delta: Of one release.
        clip: L2 norm of an embedding.
        length: Tokens of a text.
    """

    base: str
    folder: Path
    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0
    length: int = 128

    def __post_init__(self) -> None:
        checks.sensible("protect", epsilon=self.epsilon, clip=self.clip)
        checks.fraction("protect", delta=self.delta)
        checks.count("protect", length=self.length)

    @property
    def mechanism(self) -> Gaussian:
        """The noise: exact for one text in another's place."""
        return Gaussian(noise_multiplier(self.epsilon, self.delta))


@dataclass(frozen=True)
class Payment:
    """Who pays.

    Args:
        ledger: The ledger's file; made if it is not there.
        account: The texts' account.
        releases: How many releases like this one a new account pays for in all. Its limit never changes.
    """

    ledger: Path
    account: str
    releases: int = 1


def embed(job: Job, terms: Embedding, payment: Payment, *, source: NoiseSource | None = None) -> dict[str, Any]:
    """Write the texts' noised embeddings and their statement.

    Returns:
        The statement.

    Raises:
        ConfigError: The file, the model or a number is wrong; nothing was charged.
        BudgetRefused: The account cannot pay; nothing was released.
        PrivacyError: The ledger keeps accounts of another kind; nothing was released.

    Guarantee:
        Each row is (ε, δ)-DP for its own text, which another may replace. The account adds up whole releases.
    """
    try:
        from sordino.local.text.embeddings import released, sentence_vectors
    except ImportError as missing:
        raise ConfigError.about("protect", f"needs {missing.name}", "pip install 'sordino[lm]'") from None
    from sordino.local.text.statement import of_embeddings

    rows, noise = job.rows(), source or SystemNoise()
    checks.count("protect", releases=payment.releases)
    vectors = sentence_vectors(terms.folder, job.texts(rows), length=terms.length)
    mechanism, run = terms.mechanism, f"protect-{secrets.token_hex(8)}"
    event = mechanism.event()
    with Ledger(payment.ledger) as ledger:
        _open(ledger, payment, terms, test=noise.test)
        ledger.admit(
            run, _digest(run, terms), {payment.account: [(event, 1)]}, terms.delta, noise_at=NoiseAt.SILO, rounds=1
        )
        ledger.open_run(run)
        line = Line(payment.account, Unit.RECORD, events.key(event), 1)
        reservation = ledger.reserve(f"{run}/0", run=run, round=None, purpose="query", lines=[line])
        door = Door(mechanism, event, (payment.account,), reservation, noise)
        noised = released(vectors, terms.clip, door)
        content = job.written(rows, "embedding", noised.tolist())
        ready = put(job.out, content)
        ledger.commit(reservation, sha256(content).encode())
        ready.replace(job.out)
        ledger.published(reservation.txid)
        claim, balance = ledger.claim(run, payment.account), ledger.balance(payment.account)
    return _stated(
        job,
        content,
        len(rows),
        {
            "how": "embed",
            "unit": "one text",
            "per": "released embedding",
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "adjacency": str(claim.adjacency),
            "guarantee": of_embeddings(claim.epsilon, claim.delta),
            "test": claim.test,
            "base": terms.base,
            "length": terms.length,
            "dimensions": noised.shape[1],
            "clip": terms.clip,
            "noise_std": mechanism.noise_multiplier * terms.clip,
            "signal_to_noise": 1 / (mechanism.noise_multiplier * math.sqrt(noised.shape[1])),
            "account": payment.account,
            "account_epsilon": {"used": balance.epsilon_used, "limit": balance.epsilon_limit},
            "account_delta": {"used": balance.delta_used, "limit": balance.delta_limit},
            "run": run,
            "ledger_sha256": claim.ledger_sha256,
        },
    )


def words(
    job: Job, policy: Policy, base: str, folder: Path, *, size: int = 20, source: NoiseSource | None = None
) -> dict[str, Any]:
    """Write the texts with their words replaced, and their statement.

    Args:
        job: What is read and written.
        policy: Which words, as which kind, at which epsilon.
        base: The public model whose vocabulary is used, as the user named it.
        folder: Where it lies.
        size: Words of a group.
        source: Where coins come from; left out, the system.

    Returns:
        The statement.

    Raises:
        ConfigError: The file, the model or a number is wrong; nothing was written.
    """
    from sordino.local.text.statement import of_words, per_text
    from sordino.local.text.vocabulary import vocabulary
    from sordino.local.text.words import Replacer

    rows, noise = job.rows(), source or SystemNoise()
    replacer = Replacer.of(policy, vocabulary(folder), size)
    done = [replacer(text, noise) for text in job.texts(rows)]
    content = job.written(rows, job.column, [one.text for one in done])
    published(job.out, content)
    epsilon = {kind.name: kind.epsilon for kind in policy.kinds}
    return _stated(
        job,
        content,
        len(rows),
        {
            "how": "words",
            "unit": "one word",
            "per": "replaced word of the policy",
            "guarantee": of_words(policy),
            "test": noise.test,
            "base": base,
            "kinds": [
                {
                    "name": kind.name,
                    "epsilon": kind.epsilon,
                    "which": kind.rule,
                    "groups": len(replacer.groups[kind.name].sizes),
                    "smallest_group": min(replacer.groups[kind.name].sizes, default=0),
                    "largest_group": max(replacer.groups[kind.name].sizes, default=0),
                    "replaced": sum(one.words.get(kind.name, 0) for one in done),
                }
                for kind in policy.kinds
            ],
            "without_vector": sum(one.masked for one in done),
            "passed": sum(one.passed for one in done),
            "epsilon_per_text": per_text([sum(n * epsilon[k] for k, n in one.words.items()) for one in done]),
        },
    )


def _stated(job: Job, content: bytes, texts: int, facts: dict[str, Any]) -> dict[str, Any]:
    statement = facts | {
        "texts": texts,
        "column": job.column,
        "columns_kept_unprotected": list(job.keep),
        "file": job.out.name,
        "sha256": sha256(content),
    }
    published(job.statement, (json.dumps(statement, indent=2, allow_nan=False) + "\n").encode())
    return statement


def _open(ledger: Ledger, payment: Payment, terms: Embedding, *, test: bool) -> None:
    """Open the account if it is new; refuse a ledger whose accounts mean something else."""
    known = {account.name: account for account in ledger.accounts()}
    for account in known.values():
        if (account.unit, account.adjacency, account.test) != (Unit.RECORD, Adjacency.REPLACE_ONE, test):
            raise PrivacyError.about(
                "ledger",
                f"is kept for {account.unit}, {account.adjacency}{', TEST' if account.test else ''}",
                "keep released embeddings in a ledger of their own",
                account=account.name,
            )
    if payment.account in known:
        return
    price = best_epsilon([(terms.mechanism.event(), 1)], terms.delta, adjacency=Adjacency.REPLACE_ONE).epsilon
    ledger.open_account(
        Account(
            name=payment.account,
            unit=Unit.RECORD,
            adjacency=Adjacency.REPLACE_ONE,
            epsilon=_times(price, payment.releases, amounts.EPSILON),
            delta=_times(terms.delta, payment.releases, amounts.DELTA),
            test=test,
        )
    )


def _times(price: float, releases: int, places: int) -> float:
    """The least limit that pays a price so many times, each rounded up to the ledger's grid."""
    return amounts.number(releases * amounts.charge("protect", price, places), places)


def _digest(run: str, terms: Embedding) -> str:
    """Names the release by its terms: the texts themselves leave no trace in the ledger."""
    body = {"run": run, "base": terms.base, "clip": terms.clip, "epsilon": terms.epsilon, "delta": terms.delta}
    return sha256(json.dumps(body, sort_keys=True).encode())
