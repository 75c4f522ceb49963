"""What a plan finds, promises and refuses."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from sordino.core.errors import BudgetRefused, ConfigError, PrivacyError
from sordino.core.types import Adjacency
from sordino.experiment.config import parse
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import load
from sordino.experiment.render import plan_json
from sordino.privacy import events
from sordino.privacy.accounting import best_epsilon
from sordino.privacy.gaussian import delta_of


@pytest.fixture
def plan_of(heart):
    """Plans the hospitals' experiment with some terms changed."""
    text = heart.read_text(encoding="utf-8")

    def plan(*overrides: str, **options: bool) -> Plan:
        experiment = parse(text, overrides)
        return make_plan(experiment, load(experiment), **options)

    return plan


SAMPLED = "local={ lr = 1.0, clip = 0.3, batch = 0.2 }"


def test_epsilon_gives_noise_by_the_closed_form(plan_of):
    """
    Unsampled Gaussians: at the noise found, δ at ε = 2 is at most 1e-5, and more than at 1 % more noise.
    """
    z = plan_of().accounts[0].noise_multiplier

    assert delta_of(2.0, math.sqrt(3) / z) <= 1e-5 < delta_of(2.0, math.sqrt(3) / (z * 0.99))


def test_noise_gives_epsilon(plan_of):
    """
    The other way round: the epsilon is that of the noise found, and comes without a limit.
    """
    asked = plan_of()
    z = asked.accounts[0].noise_multiplier

    given = plan_of(f"privacy={{ noise_multiplier = {z!r}, delta = 1e-5, silos_per_person = 1 }}")

    assert given.epsilon == pytest.approx(asked.epsilon, rel=1e-9)
    assert given.accounts[0].limit is None


def test_rounds_are_found_to_the_last_one_that_fits(plan_of):
    """
    Epsilon and noise given: one round more would be refused.
    """
    plan = plan_of("rounds=fit", "privacy.noise_multiplier=10.0")
    rounds = plan.experiment.count

    assert rounds > 1
    assert plan.epsilon <= 2.0
    with pytest.raises(BudgetRefused):
        plan_of(f"rounds={rounds + 1}", "privacy.noise_multiplier=10.0")


def test_the_batch_is_found_on_the_safe_side(plan_of):
    """
    Epsilon, noise and rounds given: the rate found costs at most epsilon, and nearly all of it.
    """
    plan = plan_of("local={ lr = 1.0, clip = 0.3, batch = 'fit' }", "rounds=20", "privacy.noise_multiplier=2.0")

    assert 0 < plan.experiment.local.rate < 1
    assert 1.95 < plan.epsilon <= 2.0


def test_all_given_and_too_dear_is_refused(plan_of):
    """
    Nothing is adjusted behind anyone's back.
    """
    with pytest.raises(BudgetRefused, match="would spend epsilon"):
        plan_of("privacy.noise_multiplier=1.0")


def test_sampling_saves_noise(plan_of):
    """
    The same epsilon takes less noise when each step sees a fifth of the records.
    """
    assert plan_of(SAMPLED).accounts[0].noise_multiplier < 0.7 * plan_of().accounts[0].noise_multiplier


@pytest.mark.parametrize("overrides", [(), (SAMPLED,)])
def test_what_is_promised_is_the_price_of_what_is_charged(plan_of, overrides):
    """
    The events in the plan, priced anew, give its epsilons; it never exceeds what was asked for.
    """
    for account in plan_of(*overrides).accounts:
        price = best_epsilon(account.events, 1e-5, adjacency=Adjacency.ADD_REMOVE).epsilon
        assert account.epsilon == price <= 2.0


def test_the_relation_decides_how_far_a_unit_moves_a_sum(plan_of):
    """
    Replacing one record moves a clipped sum twice as far as adding one: twice the noise for the same epsilon.
    """
    add, replaced = plan_of(), plan_of("privacy.adjacency=replace_one")

    assert replaced.accounts[0].noise_multiplier == pytest.approx(2 * add.accounts[0].noise_multiplier, rel=2e-3)


def test_people_of_one_silo_risk_their_own_silos_epsilon(plan_of):
    """
    Disjoint people: the largest of the silos' epsilons, never the sum and never a share.
    """
    plan = plan_of("silos={ hungary = { epsilon = 0.5 } }")

    assert plan.epsilon == max(account.epsilon for account in plan.accounts)


def test_people_of_unknown_silos_pay_for_all_of_them(plan_of):
    """
    Not declared: every silo is composed, which four unsampled Gaussians do like four times the rounds.
    """
    terms = "privacy={ epsilon = 2.0, delta = 1e-5 }"
    plan = plan_of(terms)
    one = plan.accounts[0]
    four = [(event, 4 * count) for event, count in one.events]

    assert plan.epsilon == pytest.approx(best_epsilon(four, 1e-5, adjacency=Adjacency.ADD_REMOVE).epsilon)
    assert plan_of(terms.replace(" }", ", silos_per_person = 2 }")).epsilon < plan.epsilon
    assert plan.epsilon > max(account.epsilon for account in plan.accounts)


def test_a_smaller_epsilon_means_more_noise(plan_of):
    """
    Tiers: more sensitive data ask for a smaller epsilon and get more noise, silo by silo.
    """
    plan = plan_of("silos={ hungary = { epsilon = 1.0 }, switzerland = { epsilon = 0.5 } }")
    noise = {account.name: account.noise_multiplier for account in plan.accounts}

    assert noise["switzerland"] > noise["hungary"] > noise["cleveland"] == noise["va-long-beach"]
    assert [a.limit for a in plan.accounts] == [2.0, 1.0, 0.5, 2.0]


def test_noise_aware_weights_fall_with_the_noise(plan_of):
    """
    The noisier silo counts less; the weights still add up to one.
    """
    tiers = "silos={ hungary = { epsilon = 0.5 } }"
    by_size, by_noise = plan_of(tiers).weights, plan_of(tiers, "weights=noise_aware").weights

    assert by_noise[1] < by_size[1] / 3
    assert sum(by_noise) == pytest.approx(1.0)
    assert plan_of("weights=uniform").weights == (0.25,) * 4


CLIENTS = (
    "privacy={ unit = 'client', noise_at = 'coordinator', noise_multiplier = 1.0, delta = 1e-5 }",
    "partition={ iid = { clients = 100 } }",
    "stages=[{ clip = { norm = 0.1 } }]",
    "local={ lr = 1.0 }",
)


def test_the_coordinator_of_raw_updates_has_no_guarantee(plan_of):
    """
    Every view is stated; an unbounded one as infinity, in JSON as null.
    """
    plan = plan_of(*CLIENTS, "sampling={ poisson = { rate = 0.2 } }")

    assert plan.views["coordinator"] == math.inf
    assert plan_json(plan)["views"]["coordinator"] is None
    assert plan.epsilon == plan.views["another client"] < 8.0


def test_a_client_pays_only_for_the_rounds_it_is_in(plan_of):
    """
    Round robin: 100 clients, 20 a round, 10 rounds, hence two releases each.
    """
    plan = plan_of(*CLIENTS, "sampling={ round_robin = { size = 20 } }", "rounds=10")

    assert {account.releases for account in plan.accounts} == {2}


def test_a_plan_that_drowns_is_refused_with_the_nearest_that_learns(plan_of):
    """
    Four hospitals as clients: refused, and the epsilon it names is enough.
    """
    terms = (*CLIENTS[2:], "privacy={ unit = 'client', noise_at = 'coordinator', epsilon = 0.3, delta = 1e-5 }")
    with pytest.raises(PrivacyError, match="drowns") as refused:
        plan_of(*terms)
    epsilon = float(str(refused.value).split("nearest plans that can: epsilon=")[1].split(",")[0])

    plan_of(*terms, f"privacy.epsilon={epsilon * 1.02}")
    assert plan_of(*terms, check_learning=False).forecast.verdict == "hopeless"


def test_what_a_sum_leaves_when_all_others_tell(plan_of):
    """
    Noise at the sum: the colluding set is priced with one silo's share, a larger epsilon.
    """
    plan = plan_of("privacy.noise_at=sum", "simulation.secure_sum=true")
    together = plan.views["all others together, if each silo adds its share"]

    assert together > plan.epsilon
    assert len({account.noise_multiplier for account in plan.accounts}) == 1


def test_delta_is_below_one_over_the_largest_silo(plan_of):
    """
    At δ = 1/n a mechanism that publishes one record at random would pass.
    """
    largest = max(account.units for account in plan_of().accounts)

    plan_of(f"privacy.delta={0.99 / largest}")
    with pytest.raises(ConfigError, match="below 1/n"):
        plan_of(f"privacy.delta={1 / largest}")


def test_the_digest_names_everything_that_shapes_the_run(plan_of):
    """
    Equal experiments have equal digests; another seed, clip or epsilon has another.
    """
    digests = [plan_of(*o).digest for o in ((), ("seed=2",), ("local.clip=0.2",), ("privacy.epsilon=1.9",))]

    assert len(set(digests)) == len(digests)
    assert plan_of().digest == digests[0]


@pytest.mark.parametrize("speed", ["local.micro_batch=7", "simulation.cohort=loop", "evaluation.every=1"])
def test_the_digest_does_not_name_what_changes_speed_only(plan_of, speed):
    """
    Otherwise less memory would be a second release.
    """
    assert plan_of(speed).digest == plan_of().digest


def test_noise_walk_is_what_the_noise_alone_moves_a_parameter(plan_of):
    """
    The step size follows from the noise: √rounds times the noise of one step is the walk asked for.
    """
    plan = plan_of("rounds=4")
    local = plan.experiment.local
    step = [
        w * local.step_size * a.noise_multiplier * 0.3 / a.units
        for w, a in zip(plan.weights, plan.accounts, strict=True)
    ]

    assert math.sqrt(4) * math.hypot(*step) == pytest.approx(0.9, rel=1e-6)


STABLE = {"epsilon", "delta", "unit", "noise_at", "adjacency", "noise_multiplier", "rounds", "silos"}


def test_the_json_of_a_plan_is_stable_and_complete(plan_of):
    """
    The documented keys are there, every number is finite or null, and it is JSON.
    """
    value = json.loads(json.dumps(plan_json(plan_of()), allow_nan=False))

    assert value.keys() >= STABLE
    assert {"name", "epsilon"} <= value["silos"][0].keys()
    assert value["epsilon"] == plan_of().epsilon
    assert [row["method"] for row in value["composition"]][:3] == ["PLD", "RDP", "GDP (exact)"]
    assert value["attack"]["tpr_at_fpr"]["0.01"] < math.exp(2) * 0.01 + 1e-5


def test_the_sampling_rate_of_clients_is_that_of_the_cohort(plan_of):
    """
    For clients the rate is how often one joins a round, not how a client samples its own records.
    """
    assert plan_json(plan_of(*CLIENTS, "sampling={ poisson = { rate = 0.2 } }"))["sampling_rate"] == pytest.approx(0.2)


def test_a_plan_looks_at_no_value(heart):
    """
    Other values in the same shape give the same plan.
    """
    experiment = parse(heart.read_text(encoding="utf-8"))
    population = load(experiment)
    examples = population.train.examples
    other = replace(examples, x=examples.x[::-1] * 0.5, y=1 - examples.y)
    blind = replace(population, train=replace(population.train, examples=other))

    assert make_plan(experiment, blind) == make_plan(experiment, population)


def test_one_event_per_account(plan_of):
    """
    A run charges one kind of release per account: what progress is computed from.
    """
    for overrides in ((), (SAMPLED,), (*CLIENTS, "sampling={ poisson = { rate = 0.2 } }")):
        for account in plan_of(*overrides).accounts:
            ((key, count),) = account.charges
            assert count == account.releases
            assert events.key(events.from_key(key)) == key
