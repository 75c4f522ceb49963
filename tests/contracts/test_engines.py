"""Every registered engine: same plan, same updates, and clients cannot disturb each other."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from sordino.core.errors import EngineError
from sordino.core.types import RoundPlan, Update
from sordino.experiment.flower.local_grid import LocalGrid
from sordino.experiment.flower_app import client_app
from sordino.federation.aggregators.sum import Sum
from sordino.federation.engines import Engine, engines
from sordino.federation.engines.flower import Flower, GridPost
from sordino.federation.post import Letter

SIZE = 1000
PLAN = RoundPlan(3, 10, (), expected=4.0)
MODEL = np.arange(SIZE, dtype=np.float32)


def work(client: int, model: np.ndarray, plan: RoundPlan) -> Update:
    """A change that depends on all three arguments."""
    return Update(model * np.float32(client) + np.float32(plan.round), records=client)


def together(clients: np.ndarray, model: np.ndarray, plan: RoundPlan) -> Iterator[Update]:
    """The same for several clients, last one first."""
    for client in reversed(clients):
        yield work(int(client), model, plan)


def by_client(updates: list[Update]) -> list[tuple[int, bytes]]:
    return sorted((update.records, update.vector.tobytes()) for update in updates)


@dataclass(frozen=True)
class Letters:
    """What is written to clients that are elsewhere, in its barest form: the round and the model; a vector back."""

    def letter(self, plan, client, announced):
        return str(client), Letter("train", {"round": plan.round}, announced.model)

    def read(self, plan, client, answer, size):
        assert answer.vector.shape == (size,)
        return Update(answer.vector, records=answer.number("records"))

    def closed(self, plan, silent):
        assert silent == {}


def made(name: str, work=work) -> Engine:
    """An engine as the experiment has it; over machines, every client does this work in an app of its own."""
    if name != "flower":
        return engines.example(name)

    def app(client):
        def answer(letter):
            update = work(client, letter.vector.copy(), PLAN)  # as training does: messages are read-only
            return Letter("train", {"records": update.records}, update.vector)

        return client_app(answer)

    return Flower(GridPost(LocalGrid({client: app(client) for client in range(1, 10)})), Letters(), 10.0)


NAMES = [*engines.names(), "flower"]


@pytest.mark.parametrize("name", NAMES)
class TestEngine:
    def test_same_plan_same_updates(self, name):
        """Each client of the cohort answers once, with what its work gives; arrival order is free."""
        cohort = np.array([5, 2, 9])
        updates = list(made(name).run(PLAN, cohort, MODEL, work))
        assert by_client(updates) == by_client([work(client, MODEL, PLAN) for client in (2, 5, 9)])

    def test_work_that_can_be_shared_gives_the_same_updates(self, name):
        """Whether an engine lets clients work together is its affair."""
        cohort = np.array([5, 2, 9])
        updates = list(made(name).run(PLAN, cohort, MODEL, work, together))
        assert by_client(updates) == by_client([work(client, MODEL, PLAN) for client in (2, 5, 9)])

    def test_an_empty_cohort_is_a_valid_round(self, name):
        """Nobody drawn: no updates, no error."""
        for shared in (None, together):
            assert list(made(name).run(PLAN, np.array([], np.int64), MODEL, work, shared)) == []

    def test_a_client_cannot_change_the_model_for_others(self, name):
        """A client that writes to its model leaves the next one's as it was."""

        def vandal(client, model, plan):
            model += 1
            return Update(model.copy(), records=client)

        model = MODEL.copy()
        updates = list(made(name, vandal).run(PLAN, np.arange(1, 4), model, vandal))
        assert all(np.array_equal(update.vector, MODEL + 1) for update in updates)
        assert np.array_equal(model, MODEL)

    def test_clients_together_cannot_change_the_model_either(self, name):
        """The server's model stays as it was."""

        def vandals(clients, model, plan):
            model += 1
            yield from together(clients, model, plan)

        model = MODEL.copy()
        list(made(name).run(PLAN, np.arange(1, 4), model, work, vandals))
        assert np.array_equal(model, MODEL)


def test_memory_does_not_grow_with_the_cohort():
    """2,000 clients of 1,000 parameters (8 MB of updates) pass through well under 100 updates' worth of memory."""

    def peak(clients: int) -> int:
        tracemalloc.start()
        updates = engines.example("inprocess").run(PLAN, np.arange(clients), MODEL, work)
        Sum().reduce(updates, SIZE)
        _, top = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return top

    assert peak(2000) < peak(10) + 20 * MODEL.nbytes


def test_in_process_a_clients_error_is_raised():
    """Skipping it would hide a bug of this very program."""

    def broken(client, model, plan):
        raise EngineError.about("client", "is broken")

    with pytest.raises(EngineError, match="broken"):
        list(engines.example("inprocess").run(PLAN, np.arange(2), MODEL, broken))


def test_in_process_clients_work_together_where_they_can():
    """Their order is the shared work's, last one first here."""
    updates = engines.example("inprocess").run(PLAN, np.arange(3), MODEL, work, together)
    assert [update.records for update in updates] == [2, 1, 0]
