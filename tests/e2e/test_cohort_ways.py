"""How clients train in one process changes a run's speed, and neither its plan nor its result."""

import numpy as np
import pytest
from whole_runs import model, planned, ran

from sordino.core.errors import ConfigError
from sordino.experiment.company import FEWEST, company
from sordino.local.clipping import engines
from sordino.local.models import models

RUN = """
name = "ways"
rounds = 2
[data.digits]
[partition.dirichlet]
clients = 12
alpha = 1.0
[model.mlp]
hidden = [8]
[privacy]
{privacy}
[local]
lr = 0.2
{local}
[objective.fedprox]
mu = 0.1
[sampling.all]
[strategy.fedavg]
[simulation]
noise_seed = 1
"""
CLIENT = "epochs = 2\nbatch_size = 16\nmomentum = 0.5"
SETTINGS = {
    "clients at coordinator": ('unit = "client"\nnoise_at = "coordinator"\nnoise_multiplier = 0.1', CLIENT, True),
    "clients at silo": ('unit = "client"\nnoise_at = "silo"\nnoise_multiplier = 0.1', CLIENT, True),
    "without privacy": ("non_private = true", CLIENT, False),
    "records at silo": ("noise_multiplier = 0.5\nsilos_per_person = 1", "steps = 2\nclip = 0.5", False),
}


@pytest.fixture
def experiment(tmp_path, request):
    """One setting's experiment file."""
    privacy, local, clipped = SETTINGS[request.param]
    text = RUN.format(privacy=privacy, local=local) + ("[[stages]]\nclip = { norm = 0.5 }\n" if clipped else "")
    file = tmp_path / "ways.toml"
    file.write_text(text.replace("[simulation]\nnoise_seed = 1\n", "") if "non_private" in text else text)
    return file


@pytest.mark.parametrize("experiment", SETTINGS, indirect=True)
def test_one_run_whatever_the_way(experiment):
    """The same digest, and the same model up to rounding: cohorts, shuffles and noise are the loop's."""
    loop = ran(experiment, "simulation.cohort=loop", runs=experiment.parent / "loop")
    ways = ["stacked"] if "clip = 0.5" in experiment.read_text() else ["stacked", "vmap"]
    for way in ways:
        other = ran(experiment, f"simulation.cohort={way}", runs=experiment.parent / way)
        assert other.summary["digest"] == loop.summary["digest"]
        assert np.allclose(model(other), model(loop), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("experiment", ["records at silo"], indirect=True)
class TestCompany:
    def chosen(self, file, *overrides):
        plan, population = planned(file, *overrides)
        module = models.build("mlp", {"hidden": [8]}).build(population.spec, 0)
        return company(plan, population, module, engines.build("auto", {}))

    def test_small_cohorts_are_not_worth_a_try(self, experiment):
        """The four hospitals of an example gain nothing, and their results stay what they were to the bit."""
        assert self.chosen(experiment, f"partition.dirichlet.clients={FEWEST - 1}") == (None, None)

    def test_vmap_is_for_whole_clients(self, experiment):
        """Clipped sums are stacked or looped."""
        with pytest.raises(ConfigError, match="cohort='vmap'"):
            self.chosen(experiment, "simulation.cohort=vmap")

    def test_unknown_ways_are_refused(self, experiment):
        """Before anything runs."""
        with pytest.raises(ConfigError, match="cohort"):
            planned(experiment, "simulation.cohort=fast")
