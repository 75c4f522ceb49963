"""Flower's accountant over a ledger: Flower's own strategy plugs it in, a restart goes on, and a budget is the end."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency
from sordino.ledger import Account, Ledger, verify
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon, epsilon

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from sordino.experiment.flower.accountant import LedgerAccountant
from sordino.experiment.flower.local_grid import LocalGrid

CLIENTS, DELTA = 4, 1e-5
EVENT = GaussianPrivacyEvent(2.0, CLIENTS, CLIENTS)


def config(max_epsilon=8.0, **more):
    told = {
        "target_delta": DELTA,
        "population_size": CLIENTS,
        "neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "sampling_method": SamplingMethod.NO_AMPLIFICATION,
    }
    return PrivacyConfig(**{**told, **more}, max_epsilon=max_epsilon)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "clients.db"


def accountant(place, run="run", most=3, event=EVENT, of=None, **more):
    return LedgerAccountant(place, run, of or config(), event, most, **more)


def price(count, z=2.0, adjacency=Adjacency.ADD_REMOVE):
    return best_epsilon([(events.gaussian(z), count)], DELTA, adjacency=adjacency).epsilon


# ── inside Flower's own strategy ──


def flowers(place, seen):
    """Four ClientApps that move a vector by one; each notes what the ledger knows when a model reaches it."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        with Ledger(place, read_only=True) as ledger:
            seen.append([charge.state for charge in ledger.charges("run")])
        arrays = message.content["arrays"].to_numpy_ndarrays()
        return Message(
            RecordDict({"arrays": ArrayRecord([a + 1 for a in arrays]), "metrics": MetricRecord({"num-examples": 1})}),
            reply_to=message,
        )

    return LocalGrid(dict.fromkeys(range(1, CLIENTS + 1), app))


def strategy(accounted):
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    return DifferentialPrivacyServerSideFixedClipping(inner, 2.0, 1.0, CLIENTS, accountant=accounted)


def start(accounted, grid, rounds):
    return strategy(accounted).start(grid, ArrayRecord([np.zeros(3)]), num_rounds=rounds)


def test_flowers_strategy_charges_every_model_before_a_client_sees_it(place):
    """
    In round t each of the four clients finds t - 1 committed charges; the price is ours, below Flower's own.
    """
    seen = []
    with accountant(place) as accounted:
        grid, wrapped = flowers(place, seen), None
        wrapped = strategy(accounted)
        wrapped.start(grid, ArrayRecord([np.zeros(3)]), num_rounds=3)
        spent = wrapped.privacy_spent()
        claim = accounted.claim()
    assert seen == [["committed"] * round_ for round_ in range(3) for _ in range(CLIENTS)]
    assert (spent.num_releases, spent.delta) == (3, DELTA)
    assert spent.epsilon == pytest.approx(price(3))
    assert spent.accounting_method == "sordino ledger, gdp, TEST"
    theirs = RdpAccountant(config())
    theirs.compose(EVENT, 3)
    assert spent.epsilon < theirs.get_epsilon(DELTA)
    assert claim.test
    assert claim.complete
    assert claim.epsilon == pytest.approx(price(3))
    assert verify(place).problems == ()


def test_a_round_above_the_plan_is_refused_before_anything_is_sent(place):
    """
    By Flower's own question; Flower's own accountant, made anew, would go on from zero.
    """
    seen = []
    with accountant(place, most=2) as accounted, pytest.raises(PrivacyBudgetExhausted):
        start(accounted, flowers(place, seen), 3)
    assert len(seen) == 2 * CLIENTS
    with accountant(place, most=2) as accounted, pytest.raises(PrivacyBudgetExhausted):
        start(accounted, flowers(place, seen), 1)
    assert len(seen) == 2 * CLIENTS
    start(RdpAccountant(config()), flowers(place, seen), 1)
    assert len(seen) == 3 * CLIENTS


def test_a_model_whose_charge_is_refused_does_not_leave(place):
    """
    Should the question not be asked: `compose` raises between noise and release, and Flower gives nothing back.
    """
    seen = []

    class Unasked(LedgerAccountant):
        def would_exceed(self, *_, **__):
            return False

    with Unasked(place, "run", config(), EVENT, 2) as accounted, pytest.raises(BudgetRefused):
        start(accounted, flowers(place, seen), 5)
    assert len(seen) == 3 * CLIENTS
    assert seen[-1] == ["committed"] * 2


# ── restarts ──

DIES = """
    import os, sys
    from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
    from sordino.experiment.flower.accountant import LedgerAccountant
    from sordino.ledger import Ledger

    config = PrivacyConfig(1e-5, 4, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION, 8.0)
    event = GaussianPrivacyEvent(2.0, 4, 4)
    accountant = LedgerAccountant(sys.argv[1], "run", config, event, 3)
    accountant.compose(event)
    Ledger.hand_over = lambda *_: os._exit(9)
    accountant.compose(event)
"""


def test_a_killed_process_is_charged_for_what_it_may_have_released(place):
    """
    It dies between charge and hand-over; the next one starts at two releases, and one is left.
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(DIES), str(place)], check=False)
    assert killed.returncode == 9
    with accountant(place) as again:
        assert again.num_releases == 2
        assert again.get_epsilon(DELTA) == pytest.approx(price(2))
        assert again.would_exceed(EVENT, count=2)
        assert not again.would_exceed(EVENT)
        again.compose(EVENT)
        with pytest.raises(BudgetRefused):
            again.compose(EVENT)
    with Ledger(place, read_only=True) as ledger:
        assert [charge.state for charge in ledger.charges("run")] == ["committed", "forfeited", "committed"]


def test_who_is_still_running_is_refused_when_another_has_taken_over(place):
    """
    Two processes would each spend the plan.
    """
    with accountant(place) as first, accountant(place) as second:
        second.compose(EVENT)
        with pytest.raises(PrivacyError, match="taken over"):
            first.compose(EVENT)
        assert first.num_releases == second.num_releases == 1


def test_runs_on_the_same_people_add_up(place):
    """
    What Flower's own accountant does not know: a second run is refused when the account cannot pay for it.
    """
    with accountant(place, "first", epsilon=2 * price(3) + 1e-9, delta=2 * DELTA) as one:
        one.compose(EVENT)
    with accountant(place, "second") as two:
        two.compose(EVENT)
    with pytest.raises(BudgetRefused, match="would fit"):
        accountant(place, "third", most=1)


def test_a_changed_plan_is_a_new_run(place):
    """
    More rounds, less noise, other people: the name is taken.
    """
    accountant(place, epsilon=100.0, delta=0.1).close()
    for changed in ({"most": 4}, {"event": GaussianPrivacyEvent(1.9, CLIENTS, CLIENTS)}, {"of": config(7.0)}):
        with pytest.raises(PrivacyError, match="another plan"):
            accountant(place, **changed)


# ── what it says ──


@pytest.mark.parametrize(
    ("method", "relation", "adjacency", "charged"),
    [
        ("POISSON", "ADD_OR_REMOVE_ONE", Adjacency.ADD_REMOVE, events.poisson(0.01, events.gaussian(2.0))),
        ("WITHOUT_REPLACEMENT", "REPLACE_ONE", Adjacency.REPLACE_ONE, None),
        ("NO_AMPLIFICATION", "ADD_OR_REMOVE_ONE", Adjacency.ADD_REMOVE, events.gaussian(2.0)),
    ],
)
def test_each_pair_of_sampling_and_relation_is_priced_as_it_is(place, method, relation, adjacency, charged):
    """
    By the best accountant that has a price for it; never below it.
    """
    charged = charged or events.without_replacement(400, 4, events.gaussian(2.0))
    of = config(
        90.0,
        population_size=400,
        sampling_method=SamplingMethod[method],
        neighboring_relation=NeighboringRelation[relation],
    )
    event = GaussianPrivacyEvent(2.0, 4, 400)
    with accountant(place, of=of, event=event, most=10) as accounted:
        assert (accounted.get_epsilon(DELTA), accounted.get_delta(1.0)) == (0.0, 0.0)
        accounted.compose(event, 5)
        expected = best_epsilon([(charged, 5)], DELTA, adjacency=adjacency)
        assert accounted.get_epsilon(DELTA) == pytest.approx(expected.epsilon)
        assert accounted.get_delta(expected.epsilon) == pytest.approx(DELTA, rel=0.02)
        assert accounted.would_exceed(event, max_epsilon=expected.epsilon)
        assert not accounted.would_exceed(event, max_epsilon=10 * expected.epsilon, count=5)
    if method == "POISSON":
        assert expected.epsilon < epsilon([(charged, 5)], DELTA, adjacency=adjacency, accountant="rdp")


def test_a_state_names_the_ledger_and_is_believed_only_by_it(place, tmp_path):
    """
    It restores nothing: the ledger has it. One that was put back does not know the hash.
    """
    with accountant(place) as accounted:
        accounted.compose(EVENT)
        before = place.read_bytes()
        accounted.compose(EVENT)
        state = accounted.state_dict()
        accounted.load_state_dict(state)
        assert set(state) == {"schema_version", "backend", "ledger", "run", "plan", "hash"}
        with pytest.raises(PrivacyError, match="another run"):
            accounted.load_state_dict({**state, "run": "other"})
    old = tmp_path / "old.db"
    old.write_bytes(before)
    with accountant(old) as back, pytest.raises(VerificationError, match="put back"):
        back.load_state_dict(state)


def test_what_makes_no_sense_is_refused(place):
    """
    No limit, another population, a release that was not planned, a real account, the wrong relation.
    """
    with pytest.raises(ConfigError, match="is needed"):
        accountant(place, of=config(None))
    with accountant(place) as accounted:
        with pytest.raises(ConfigError, match="another population"):
            accounted.compose(GaussianPrivacyEvent(2.0, CLIENTS, CLIENTS + 1))
        less = GaussianPrivacyEvent(1.0, CLIENTS, CLIENTS)
        assert accounted.would_exceed(less, max_epsilon=1000.0)
        with pytest.raises(BudgetRefused):
            accounted.compose(less)
        for wrong in (0, -1, True):
            with pytest.raises(ConfigError):
                accounted.compose(EVENT, wrong)
        assert accounted.num_releases == 0
    with Ledger(place) as ledger:
        ledger.open_account(Account("patients", "record", "add_remove", 8.0, 1e-5))
    with pytest.raises(PrivacyError, match="of a record"):
        accountant(place, "other", account="patients")
