"""A silo's rules: which plans it takes part in, beyond what its accounts can pay for. A small TOML file of its own.

name = "north"
coordinators = ["coordinator+…"]      whose checkpoints it keeps; nobody else gets a grant
officers = ["officer+…"]              whose signatures a plan needs
epsilon = 2.0                         at most, per plan
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.core import checks, code, tables
from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, NoiseAt, Unit
from sordino.ledger import pricing
from sordino.ledger.approval import Approval, PlanTerms
from sordino.ledger.keys import VerifyKey


@dataclass(frozen=True)
class Rules:
    """What a silo asks of a plan, and where its own things are. Paths start at the file's folder.

    Args:
        name: The silo's, as in the data and in the names of its accounts.
        coordinators: Public keys of coordinators; there is no grant for anybody else.
        officers: Public keys of those who may approve plans.
        need: How many of them must have signed; not asked where there are no officers.
        plans: Digests of the only plans allowed; empty: any that the rest allows.
        epsilon: At most, per plan, for the worst account of the silo.
        delta: At most, per plan.
        clip: At most.
        rounds: At most, per plan.
        unit: Allowed units.
        noise_at: Allowed places of noise.
        adjacency: Allowed neighbouring relations.
        data: Names of the only data sets allowed, as under `[data]`; empty: any.
        columns: The only columns that a plan may read, by any role; empty: any. A plan must name them then.
        models: The only models allowed, by their name under `[model]` or by their base; empty: any.
        min_cohort: With fewer silos in the plan it does not take part.
        colluding: Least share of the silos for which noise in shares must allow that they work with the coordinator.
        test: Take part in simulations, whose noise may be predictable.
        same_code: Refuse a plan that was approved with other code than runs here.
        valid_s: For how many seconds a grant may be used.
        key: File of the silo's private key.
        ledger: The silo's own ledger: a file, or `postgresql://user@host/database`.
        witness: File of the checkpoints that it has seen.
    """

    name: str
    coordinators: tuple[str, ...] = ()
    officers: tuple[str, ...] = ()
    need: int = 1
    plans: tuple[str, ...] = ()
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    rounds: int | None = None
    unit: tuple[Unit, ...] = tuple(Unit)
    noise_at: tuple[NoiseAt, ...] = tuple(NoiseAt)
    adjacency: tuple[Adjacency, ...] = tuple(Adjacency)
    data: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    min_cohort: int = 1
    colluding: float = 0.0
    test: bool = False
    same_code: bool = True
    valid_s: int = 3600
    key: str = "key.pem"
    ledger: str = "ledger.db"
    witness: str = "witness.jsonl"

    def __post_init__(self) -> None:
        checks.count("silo", need=self.need, valid_s=self.valid_s, min_cohort=self.min_cohort)
        for name in ("epsilon", "delta", "clip", "rounds"):
            if getattr(self, name) is not None:
                checks.positive("silo", **{name: getattr(self, name)})
        names = [key.name for key in self.officer_keys]
        if self.officers and self.need > len(set(names)):
            raise ConfigError.about("silo", "is more than there are officers", need=self.need, officers=names)
        _ = self.coordinator_keys  # mistyped keys are found now

    @property
    def officer_keys(self) -> list[VerifyKey]:
        """The officers' public keys."""
        return [VerifyKey.parse(text) for text in self.officers]

    @property
    def coordinator_keys(self) -> list[VerifyKey]:
        """The coordinators' public keys."""
        return [VerifyKey.parse(text) for text in self.coordinators]

    def known(self, origin: str, message: bytes, signature: str) -> None:
        """Return only if one of the silo's coordinators, of this name, signed a message.

        Raises:
            PrivacyError: None did.
        """
        for key in self.coordinator_keys:
            with contextlib.suppress(VerificationError):
                if key.name == origin:
                    return key.verify(message, signature)
        raise PrivacyError.about(
            f"silo {self.name!r}",
            "is none of its `coordinators`",
            "let the silo add its public key",
            coordinator=origin,
        )

    def accounts(self, terms: PlanTerms) -> list[str]:
        """What of this silo's pays for the plan: its own account, also in place of one for all clients, or groups'."""
        if terms.shared is not None:
            return [self.name] if self.name in terms.clients else []
        return [name for name in terms.accounts if name == self.name or name.startswith(f"{self.name}/")]

    def check(self, approval: Approval) -> None:
        """Return only if the rules allow the plan. What it depends on is public.

        Raises:
            PrivacyError: They do not; says which one.
            VerificationError: An officer's signature is forged.
        """
        terms, where = approval.terms, f"silo {self.name!r}"
        if self.plans and terms.digest not in self.plans:
            raise PrivacyError.about(where, "is not one of its `plans`", "let the silo add it", plan=terms.digest[:16])
        if self.officers:
            approval.signers(self.officer_keys, self.need)
        mine = self.accounts(terms)
        if not mine:
            raise PrivacyError.about(
                where, "charges no account of it", "name the silo as in the data", plan=terms.digest[:16]
            )
        self._check_limits(where, terms, mine)
        self._check_contents(where, terms)
        if self.same_code and terms.code != code.digest():
            raise PrivacyError.about(
                where, "is not the code that runs here", "approve the plan again with this code", code=terms.code[:16]
            )

    def _check_limits(self, where: str, terms: PlanTerms, mine: Sequence[str]) -> None:
        for name in ("unit", "noise_at", "adjacency"):
            allowed = getattr(self, name)
            if getattr(terms, name) not in allowed:
                rule = f"is not allowed; allowed: {', '.join(map(str, allowed))}"
                raise PrivacyError.about(where, rule, "change the plan", **{name: str(getattr(terms, name))})
        for name in ("delta", "clip", "rounds", "epsilon"):
            limit = getattr(self, name)
            if limit is not None:
                asked = self._epsilon(terms, mine) if name == "epsilon" else getattr(terms, name)
                if asked is None or not asked <= limit:
                    raise PrivacyError.about(where, f"is more than its {limit:g}", "change the plan", **{name: asked})
        if terms.secure_sum and terms.secure_sum.get("colluding", 0.0) < self.colluding:
            raise PrivacyError.about(
                where,
                f"is less than its `colluding` of {self.colluding:g}",
                "size the noise for more silos that tell",
                colluding=terms.secure_sum.get("colluding", 0.0),
            )
        if len(terms.silos) < self.min_cohort:
            raise PrivacyError.about(
                where, f"is less than its `min_cohort` of {self.min_cohort}", "ask more silos", silos=len(terms.silos)
            )

    def _check_contents(self, where: str, terms: PlanTerms) -> None:
        """What the plan reads and trains, by the names that it gives."""
        if terms.test and not self.test:
            raise PrivacyError.about(
                where, "is a simulation, whose noise may be predictable", "set test = true", test=True
            )
        if self.data and not terms.data.keys() <= set(self.data):
            raise PrivacyError.about(where, "is not in its `data`", "ask for other data", data=", ".join(terms.data))
        for name, options in terms.data.items() if self.columns else ():
            read = columns(options)
            if read is None:
                raise PrivacyError.about(
                    where, "names no columns, so it may read any", f"name the columns of data.{name}", data=name
                )
            other = sorted(read - set(self.columns))
            if other:
                raise PrivacyError.about(where, "are not in its `columns`", "leave them out", columns=other)
        if self.models and not terms.model:
            raise PrivacyError.about(where, "does not say its model", "approve it again", plan=terms.digest[:16])
        for name, options in terms.model.items() if self.models else ():
            if not {name, str(options.get("base"))} & set(self.models):
                base = f" on {options['base']}" if "base" in options else ""
                raise PrivacyError.about(where, "is not in its `models`", "ask for another", model=f"{name}{base}")

    def _epsilon(self, terms: PlanTerms, mine: Sequence[str]) -> float:
        """The silo's own price of the plan: it does not take the coordinator's word for it."""
        planned = terms.events(mine)
        return max(
            float(pricing.price(pricing.counts(asked), terms.delta, terms.adjacency).epsilon)
            for asked in planned.values()
        )


_ROLES = ("label", "client", "user", "group", "when", "text", "messages", "prompt", "answer")


def columns(options: Mapping[str, Any]) -> set[str] | None:
    """The columns that a plan's table of data names, by any role; None where it leaves open which features it reads.

    >>> sorted(columns({"label": "ill", "features": ["age"], "ranges": {"age": [0, 100]}}))
    ['age', 'ill']
    >>> columns({"label": "ill"}) is None
    True
    """
    if "features" not in options and not any(role in options for role in ("text", "messages", "prompt")):
        return None
    named = [options[role] for role in _ROLES if role in options]
    return {*named, *options.get("features", ()), *options.get("ranges", ()), *options.get("categories", ())}


def read_rules(file: Path) -> Rules:
    """The rules in a TOML file.

    Raises:
        ConfigError: It cannot be read, or has an unknown key or a wrong value.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ConfigError.about(
            "silo", f"cannot be read: {problem}", "make it with `sordino silo enroll`", file=str(file)
        ) from None
    return tables.build(Rules, table, "silo")
