"""A plan in the plain values that officers sign and silos check, and the file that brings it back."""

from __future__ import annotations

from pathlib import Path

from sordino.core import code, tables
from sordino.core.errors import ConfigError, PrivacyError
from sordino.experiment.plan import Plan
from sordino.ledger.approval import Approval, PlanTerms


def terms_of(plan: Plan) -> PlanTerms:
    """What a plan promises, as it is signed.

    Raises:
        ConfigError: It promises nothing.
    """
    if not plan.private:
        raise ConfigError.about("approval", "is not private: there is nothing to approve", plan=plan.experiment.name)
    experiment = plan.experiment
    shared = next((account.name for account in plan.accounts if account.client is None), None)
    return PlanTerms(
        run=plan.run,
        digest=plan.digest,
        epsilon=plan.worst.epsilon,
        delta=plan.delta,
        unit=experiment.privacy.unit,
        noise_at=experiment.privacy.noise_at,
        adjacency=plan.adjacency,
        mechanism=experiment.privacy.mechanism,
        rounds=experiment.count,
        accounts={account.name: dict(account.charges) for account in plan.accounts if account.charges},
        data=experiment.data,
        code=code.digest(),
        clip=experiment.local.clip,
        test=experiment.simulation.test,
        model=experiment.model,
        shared=shared,
        clients=() if shared is None else tuple(plan.clients),
        secure_sum=tables.plain(experiment.secure_sum) if experiment.secure_sum is not None else {},
    )


def approved(plan: Plan, base: Path) -> Approval | None:
    """The plan with the signatures in the file that the experiment names; none where it names none.

    Raises:
        ConfigError: The file cannot be read.
        PrivacyError: It approves another plan.
    """
    name = plan.experiment.approval
    if name is None:
        return None
    found = read_approval(base / name)
    if (found.terms.run, found.terms.digest) != (plan.run, plan.digest):
        raise PrivacyError.about(
            "approval", "is for another plan", "let officers sign this one: `sordino plan approve`", file=name
        )
    return found


def read_approval(file: Path) -> Approval:
    """An approved plan from its file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError.about(
            "approval", f"cannot be read: {problem}", "write it with `sordino plan approve`", file=str(file)
        ) from None
    return Approval.parse(text)
