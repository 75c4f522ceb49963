"""The trials of a private selection: charged as one, drawn in secret, scored by what each released, one is kept.

reserve `tune` ──► K and the settings are drawn ──► trial ──► trial ──► … ──► commit(the best one's bytes)
                                                   └ each in a scratch ledger: it draws what its plan says, no more
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.core.errors import PrivacyError, SordinoError
from sordino.core.types import Vector
from sordino.experiment import config, released_metrics
from sordino.experiment.books import LedgerBooks, kept
from sordino.experiment.claimed import account_of, claimed_epsilon
from sordino.experiment.figures import Released
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import Plan
from sordino.experiment.population import Population
from sordino.experiment.settings.setup import paid
from sordino.ledger import Claim, Ledger
from sordino.ledger.stores import Place, located
from sordino.privacy import selection
from sordino.privacy.permits import Line

if TYPE_CHECKING:
    from sordino.experiment.build import Built
    from sordino.experiment.tuning import Tuning
    from sordino.privacy.noise import NoiseSource

SCRATCH = "trial-"
"""How folders of trials begin."""


@dataclass(frozen=True)
class Selected:
    """What is shown of a selection: the best candidate, and nothing of the others, not even how many there were.

    Args:
        folder: Where model and summary lie.
        setting: The number of the best one's setting in the list.
        summary: JSON-able: the price as claimed, the setting, and its released figures.
        claims: The guarantees, minted by the ledger.
        fresh: False when the folder already held the finished selection.
    """

    folder: Path
    setting: int
    summary: dict[str, Any]
    claims: tuple[Claim, ...]
    fresh: bool


def selected(tuning: Tuning, population: Population, runs: Path, base: Path) -> Selected:
    """Run a selection that is priced, or read one that is finished; see `tuning.select`."""
    population.train.require_here()
    plan = tuning.plan
    folder = RunFolder(runs / f"{plan.experiment.name}-tune-{plan.digest[:8]}")
    place = located(plan.experiment.ledger, base) if plan.experiment.ledger else folder.ledger
    finished = folder.finished(plan.digest)
    if finished is not None:
        with Ledger(place, read_only=True) as ledger:
            return Selected(folder.path, finished["setting"], finished, tuple(ledger.claims(plan.run)), fresh=False)
    built = [_sound(candidate, population) for candidate in tuning.candidates]
    with _opened(tuning, folder, place) as (books, ledger):
        artefact = books.earlier(_txid(plan))
        if artefact is True:
            raise PrivacyError.about(
                "tune",
                "was interrupted: it is paid for, and never drawn again",
                "another seed is another selection, with its own price",
                selection=_txid(plan),
            )
        if not isinstance(artefact, bytes):
            artefact = _charged(tuning, built, folder, books)
        return _shown(tuning, built, artefact, folder, books, tuple(ledger.claims(plan.run)))


def _forget(folder: RunFolder) -> None:
    """Remove the trials of a process that died: nobody may look at them."""
    for left in folder.path.glob(f"{SCRATCH}*"):
        shutil.rmtree(left)


def _txid(plan: Plan) -> str:
    """A selection's one charge in the books."""
    return f"{plan.run}/selection"


def _sound(plan: Plan, population: Population) -> Built:
    """A setting's parts, its sensor audit passed, before anything is charged."""
    from sordino.audit.sensor.start import require
    from sordino.experiment.audits import sensor
    from sordino.experiment.build import build

    built = build(plan, population)
    report = sensor.at_start(built.setup)
    if report is not None:
        require(report)
    return built


def _charged(tuning: Tuning, built: Sequence[Built], folder: RunFolder, books: LedgerBooks) -> bytes:
    """Charge the selection, run it, and commit the best candidate's bytes. From the charge on there is no way back."""
    unit = tuning.plan.experiment.privacy.unit
    lines = [Line(account.name, unit, key, n) for account in tuning.plan.accounts for key, n in account.charges]
    charge = paid(books.reserve(_txid(tuning.plan), 0, lines, purpose="tune"))
    for line in lines:  # taken, so that the charge cannot be given back once a trial has begun
        charge.take((line.account,), line.key)
    best: tuple[float, bytes] | None = None
    for number, setting in enumerate(_settings(tuning, built[0].setup.source)):
        model, released = _trial(built[setting], number, folder)
        score = released.score
        if best is None or score > best[0]:
            said = {"setting": setting, "released_metrics": released.to_plain()}
            best = score, json.dumps(said).encode() + b"\n" + model.astype(np.float32).tobytes()
    if best is None:
        raise PrivacyError.about("tune", "ran no trial", "use a finite shape", shape=tuning.shape)
    books.commit(charge, best[1])
    return best[1]


def _settings(tuning: Tuning, source: NoiseSource) -> list[int]:
    """The trials' settings: how many, and which, are secret."""
    trials = selection.trials(tuning.mean_trials, tuning.shape, float(source.uniform(1)[0]))
    return [int(coin * len(tuning.candidates)) for coin in source.uniform(trials)]


def _trial(built: Built, number: int, folder: RunFolder) -> tuple[Vector, Released]:
    """One candidate's model and released figures.

    It is paid for already: a scratch ledger, gone with the trial, sees that it draws what its plan says and no more.
    """
    from sordino.experiment.settings import setting_of

    setup, run = built.setup, f"trial-{number}"
    plan = replace(setup.plan, experiment=config.changed(setup.experiment, budget=None, ledger=None))
    with (
        tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder.path) as scratch,
        kept(plan, run, Path(scratch) / "ledger.db") as (books, ledger),
    ):
        loop = built.loop(books, run, lambda _: None, lambda _: None)
        state = loop.rounds(loop.start(built.start), setting_of(setup))
        model = loop.average.result(state.average)
        released = released_metrics.release(setup, books, run, model)
        claims = [] if ledger is None else ledger.claims(run)
    if released is None or not claims or not all(claim.complete for claim in claims):
        raise PrivacyError.about("tune", "is not what was planned", "nothing was selected", trial=number)
    return model, released


@contextmanager
def _opened(tuning: Tuning, folder: RunFolder, place: Place) -> Iterator[tuple[LedgerBooks, Ledger]]:
    """The folder and the books, the selection admitted. One that is refused leaves no folder."""
    fresh = folder.begin("# a selection among the settings in plan.json\n", tuning.to_plain())
    _forget(folder)
    with ExitStack() as stack:
        try:
            books, ledger = stack.enter_context(kept(tuning.plan, tuning.plan.run, place))
        except SordinoError:
            if fresh:
                folder.discard()
            raise
        if ledger is None or not isinstance(books, LedgerBooks):
            raise PrivacyError.about("tune", "has no ledger", "protect the settings")
        yield books, ledger


def _shown(
    tuning: Tuning,
    built: Sequence[Built],
    artefact: bytes,
    folder: RunFolder,
    books: LedgerBooks,
    claims: tuple[Claim, ...],
) -> Selected:
    """The selected candidate in the folder, with the guarantee as its ledger claims it."""
    planned = {account.name: account.charges for account in tuning.plan.accounts}
    charged = [(account_of(tuning.plan, claim.account), claim.events) for claim in claims]
    if planned.keys() != {name for name, _ in charged} or any(planned[name] != found for name, found in charged):
        raise PrivacyError.about("tune", "was charged for other releases than the plan's", selection=_txid(tuning.plan))
    head, _, tail = artefact.partition(b"\n")
    said = json.loads(head)
    chosen = built[said["setting"]].setup
    model = np.frombuffer(tail, dtype=np.float32)
    pairs = zip(chosen.layout.groups, chosen.layout.shapes, strict=True)
    tensors = {group.name: model[group.start : group.stop].reshape(shape) for group, shape in pairs}
    folder.save_model(tensors, {"digest": tuning.plan.digest})
    summary = tuning.to_plain() | said | {"epsilon": claimed_epsilon(tuning.plan, claims)}
    summary |= {"test": any(claim.test for claim in claims), "ledger_sha256": claims[0].ledger_sha256}
    summary |= {"experiment": config.to_plain(chosen.experiment), "run_folder": str(folder.path)}
    folder.finish(summary)
    books.published(_txid(tuning.plan))
    return Selected(folder.path, said["setting"], summary, claims, fresh=True)
