"""Every registered sampler: what is drawn is what is priced, counted and divided by."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, pld, rdp

from sordino.core.types import Adjacency
from sordino.federation.sampling import samplers
from sordino.privacy import events
from sordino.privacy.noise import SeededNoise, SystemNoise

POPULATION = 200  # large enough that the example of a truncated sampler does cut
RELATIONS = {
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
}


@pytest.mark.parametrize("name", samplers.names())
class TestSampler:
    def test_a_cohort_is_a_set_of_clients(self, name):
        """Positions inside the population, none twice."""
        sampler, source = samplers.example(name), SystemNoise()
        for t in range(30):
            cohort = sampler.draw(POPULATION, t, source)
            assert cohort.dtype == np.int64
            assert len(set(cohort.tolist())) == cohort.size
            assert cohort.size == 0 or (cohort.min() >= 0 and cohort.max() < POPULATION)

    def test_the_mean_cohort_is_the_expected_one(self, name):
        """The public divisor is the mean of the realised sizes, within 5 standard errors."""
        sampler, source = samplers.example(name), SeededNoise(1)
        sizes = np.array([sampler.draw(POPULATION, t, source).size for t in range(2000)])
        error = sizes.std() / np.sqrt(sizes.size)
        assert abs(sizes.mean() - sampler.expected(POPULATION)) <= 5 * error + 1e-9

    def test_nobody_takes_part_more_often_than_counted(self, name):
        """Worst-case participations are at least the real ones, and exact where the schedule is public."""
        sampler, source = samplers.example(name), SystemNoise()
        for rounds in (1, 7, 20):
            real = np.zeros(POPULATION, np.int64)
            for t in range(rounds):
                real[sampler.draw(POPULATION, t, source)] += 1
            counted = sampler.participations(POPULATION, rounds)
            assert (counted == real).all() if sampler.public else (counted >= real).all()

    def test_all_clients_are_equally_likely(self, name):
        """Over many rounds every client takes part equally often: within 5 standard errors, also after a cut."""
        sampler, source = samplers.example(name), SeededNoise(2)
        rounds = 3000
        counts = np.zeros(POPULATION)
        for t in range(rounds):
            counts[sampler.draw(POPULATION, t, source)] += 1
        share = sampler.expected(POPULATION) / POPULATION
        assert np.abs(counts - rounds * share).max() <= 5 * np.sqrt(rounds * share * (1 - share)) + 1e-9

    def test_every_allowed_adjacency_has_an_accountant(self, name):
        """The charge of one round is an event that dp_accounting prices, under each relation that is allowed."""
        sampler = samplers.example(name)
        event = sampler.event(events.gaussian(2.0), POPULATION)
        for adjacency in sampler.adjacency:
            accountants = [pld.PLDAccountant(RELATIONS[adjacency]), rdp.RdpAccountant(None, RELATIONS[adjacency])]
            assert any(accountant.supports(event) for accountant in accountants)

    def test_only_a_public_schedule_ignores_the_source(self, name):
        """Two independent sources agree exactly where the cohort is public."""
        sampler = samplers.example(name)
        first = [sampler.draw(POPULATION, t, SystemNoise()).tolist() for t in range(5)]
        second = [sampler.draw(POPULATION, t, SystemNoise()).tolist() for t in range(5)]
        assert (first == second) == sampler.public

    def test_the_event_is_data(self, name):
        """The charge can be written to a ledger and read back."""
        event = samplers.example(name).event(events.gaussian(2.0), POPULATION)
        assert events.from_key(events.key(event)) == event
