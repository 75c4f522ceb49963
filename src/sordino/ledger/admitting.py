"""The part of a ledger that charges whole plans before their first release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import NoiseAt
from sordino.ledger import admission, pricing, reading, refusals, scopes, tiers
from sordino.ledger.account import PEOPLE
from sordino.ledger.governed import Governed
from sordino.ledger.officers import Signed
from sordino.privacy import events


class Admitting(Governed):
    """The part of a ledger that admits plans; see `Ledger`."""

    def admit(
        self,
        run: str,
        digest: str,
        requests: Mapping[str, events.Events],
        delta: float,
        *,
        noise_at: NoiseAt,
        quotas: Sequence[str] = (),
        approval: Signed | None = None,
        rounds: int | None = None,
    ) -> None:
        """Charge a whole frozen plan to every account that it names and to all that contain them, or to none.

        Args:
            run: Whose plan; a run has one.
            digest: The plan's digest. Admitting the same plan again changes nothing.
            requests: Every event of the plan with its count, by account.
            delta: The plan's δ, in (0, 1).
            noise_at: Where the plan's noise is added, hence against whom its ε holds.
            quotas: Accounts of a run or an analyst that pay too; live ones for every release of the run, when it is
                reserved.
            approval: Where the policy says who may `approve`: signed by them, for this run, with the terms
                `{"plan": digest}`.
            rounds: How many the plan has; accounts of a tier ask for it.

        Raises:
            BudgetRefused: An account cannot pay; says what it needs, what is left and what would fit.
            PrivacyError: The run was admitted with another plan, or its approval is missing. Or an account's tier,
                or the age of its records, forbids it.

        Guarantee:
            Plans may be chosen adaptively; each is fixed before its first release, so its ε may be that of all its
            events together, and the accounts add up (ε, δ) of whole plans.
        """
        checks.fraction("admit", delta=delta)
        if not (requests and run and digest and all(requests.values())):
            raise ConfigError.about(
                "admit", "needs a run, a digest and events for every account", run=run, digest=digest
            )
        delta = float(delta)
        terms = admission.Terms(run, digest, delta, NoiseAt(noise_at))
        plan = {name: pricing.counts(requests[name]) for name in sorted(requests)}
        known = self._payable(plan, quotas)
        for name in plan:
            if known[name][1].live:
                raise ConfigError.about("admit", "pays release by release", "leave it out of the plan", account=name)
        with self._store.read() as db:
            if admission.earlier(db, terms, plan):
                return
        asked = [admission.request(known[name][1], known[name][0], counts, delta) for name, counts in plan.items()]
        containers = scopes.payers(plan, {name: account for name, (_, account) in known.items()})
        asked += [
            admission.above(name, plan, delta, known) for name in [*containers, *quotas] if not known[name][1].live
        ]
        above = [known[name][0] for name in containers]
        live = {name: known[name][0] for name in quotas if known[name][1].live}
        try:
            with self._store.write() as db:
                if not admission.earlier(db, terms, plan):
                    self._within(db, terms, asked, rounds)
                    told = self._approved(db, terms, approval) | ({} if rounds is None else {"rounds": rounds})
                    admission.admit(db, terms, asked, told, above, live)
        except admission.Short:
            with self._store.read() as db:
                refusal = admission.refusal(db, asked, delta, above)
            refusals.note(self._store, run, "admit", refusal)
            raise refusal.error from None

    def _within(
        self, db: Connection, terms: admission.Terms, asked: Sequence[admission.Request], rounds: int | None
    ) -> None:
        """Refuse a plan that the policy in force forbids to an account that would pay for it."""
        if not tiers.bound(item.account for item in asked):
            return
        present, everything = reading.installed(db), [key for item in asked for key, _ in item.counts]
        policy = None if present is None else present.policy
        for item in asked:
            keys = [key for key, _ in item.counts] or everything
            tiers.check_plan(policy, item.account, epsilon=item.epsilon, delta=terms.delta, rounds=rounds, keys=keys)
            tiers.check_age(policy, item.account, tiers.now())

    def _payable(self, names: Iterable[str], quotas: Sequence[str]) -> admission.Known:
        """All accounts, if the named ones can be charged: they are people, contain no others, and quotas are none."""
        names = list(names)
        self._accounts([*names, *quotas])
        scopes.refuse_containers(names, {name: account for name, (_, account) in self._terms.items()})
        for name in names:
            if self._terms[name][1].scope not in PEOPLE:
                raise ConfigError.about("ledger", "is a quota, and stands for nobody", "charge people", account=name)
        for quota in quotas:
            if self._terms[quota][1].scope in PEOPLE:
                raise ConfigError.about("ledger", "is of people, not a quota", "name it in the charge", account=quota)
        return self._terms
