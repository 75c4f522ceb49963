"""A silo's rules: which plans it takes part in, beyond what its accounts can pay for. A small TOML file of its own.

name = "north"
coordinators = ["coordinator+…"]      whose checkpoints it keeps; nobody else gets a grant
officers = ["officer+…"]              whose signatures a plan needs
epsilon = 2.0                         at most, per plan
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sordino.core import checks, code, tables
from sordino.core.errors import ConfigError, PrivacyError
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
        same_code: Refuse a plan that was approved with other code than runs here.
        valid_s: For how many seconds a grant may be used.
        key: File of the silo's private key.
        ledger: The silo's own ledger.
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
    same_code: bool = True
    valid_s: int = 3600
    key: str = "key.pem"
    ledger: str = "ledger.db"
    witness: str = "witness.jsonl"

    def __post_init__(self) -> None:
        checks.count("silo", need=self.need, valid_s=self.valid_s)
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

    def accounts(self, terms: PlanTerms) -> list[str]:
        """The plan's accounts that are this silo's: its own, or one per group of its records."""
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
        if self.same_code and terms.code != code.digest():
            raise PrivacyError.about(
                where, "is not the code that runs here", "approve the plan again with this code", code=terms.code[:16]
            )

    def _epsilon(self, terms: PlanTerms, mine: Sequence[str]) -> float:
        """The silo's own price of the plan: it does not take the coordinator's word for it."""
        planned = terms.events(mine)
        return max(
            float(pricing.price(pricing.counts(asked), terms.delta, terms.adjacency).epsilon)
            for asked in planned.values()
        )


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
