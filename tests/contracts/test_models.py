"""Every registered model: described without torch, built as described, from the seed alone, examples apart."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from sordino.core.errors import ConfigError
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models, parameter_count
from sordino.local.probe import probe, synthetic

torch.set_num_threads(1)

TEXT = InputSpec((6,), classes=9, vocabulary=9)
SPECS = {
    "logistic": [InputSpec((29,), 2), InputSpec((4,), 5), InputSpec((1, 3, 3), 3)],
    "mlp": [InputSpec((29,), 2), InputSpec((2, 4, 4), 5)],
    "cnn": [InputSpec((1, 28, 28), 10), InputSpec((3, 32, 32), 10), InputSpec((1, 8, 8), 10), InputSpec((1, 8, 8), 2)],
    "char_lstm": [TEXT, InputSpec((6,), classes=2, vocabulary=9)],
}
PRETRAINED = {"causal_lm", "text_classifier"}  # see test_adapters.py
CASES = [(name, spec) for name in models.names() if name not in PRETRAINED for spec in SPECS[name]]


@pytest.mark.parametrize(("name", "spec"), CASES)
class TestEveryModel:
    def test_is_what_its_description_says(self, name, spec):
        """
        Names, shapes and order of the parameters are known without building; so is their number.
        """
        model = models.example(name)
        module = model.build(spec, seed=1)

        built = tuple((key, tuple(parameter.shape)) for key, parameter in module.named_parameters())

        assert model.shapes(spec) == built
        assert parameter_count(model, spec) == Layout.of(module).size

    def test_gives_one_row_of_logits_per_example(self, name, spec):
        """
        One logit for two classes, else one per class, in float32 and finite.
        """
        x, y = synthetic(spec, examples=3)
        logits = models.example(name).build(spec, seed=1)(x)

        assert logits.shape == (3, spec.outputs)
        assert logits.dtype == torch.float32
        assert torch.isfinite(cross_entropy(logits, y)).all()

    def test_comes_from_the_seed_alone(self, name, spec):
        """
        Equal seeds give equal parameters, whatever torch's global generator did; it is not touched.
        """
        model = models.example(name)
        before = torch.get_rng_state()
        first = model.build(spec, seed=1)
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(7)
        second, other = model.build(spec, seed=1), model.build(spec, seed=2)

        flat = Layout.of(first).flatten
        assert np.array_equal(flat(first), flat(second))
        assert name == "logistic" or not np.array_equal(flat(first), flat(other))
        assert first.training

    def test_passes_the_probe(self, name, spec):
        """
        No registered model lets examples see each other.
        """
        probe(models.example(name).build(spec, seed=1), cross_entropy, *synthetic(spec))


def test_known_sizes():
    """
    The classic MNIST network, 29 features and a bias, and the federated Shakespeare model.

    Sources: 21,840 in the baseline repository's CNNMnist; 820,522 in TensorFlow Federated's Shakespeare model
    (90 characters, embedding 8, two layers of 256).
    """
    assert parameter_count(models.build("cnn", {}), InputSpec((1, 28, 28), 10)) == 21_840
    assert parameter_count(models.build("logistic", {}), InputSpec((29,), 2)) == 30
    assert parameter_count(models.build("char_lstm", {}), InputSpec((80,), 90, vocabulary=90)) == 820_522


def test_the_lstm_is_an_lstm():
    """
    With torch's own layers and the same weights, the same logits.
    """
    network = models.build("char_lstm", {"embedding": 3, "hidden": 4, "layers": 2}).build(TEXT, seed=1)
    reference = nn.LSTM(3, 4, num_layers=2, batch_first=True)
    with torch.no_grad():
        for i, cell in enumerate(network.cells):
            getattr(reference, f"weight_ih_l{i}").copy_(cell.input.weight)
            getattr(reference, f"bias_ih_l{i}").copy_(cell.input.bias)
            getattr(reference, f"weight_hh_l{i}").copy_(cell.state.weight)
            getattr(reference, f"bias_hh_l{i}").zero_()
    x, _ = synthetic(TEXT)

    expected = network.head(reference(network.embedding(x))[0][:, -1])

    assert torch.allclose(network(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "table", "spec", "words"),
    [
        ("cnn", {}, InputSpec((1, 3, 3), 10), "too small"),
        ("cnn", {}, InputSpec((9,), 10), "height"),
        ("cnn", {"kernel": 4}, InputSpec((1, 8, 8), 10), "odd"),
        ("char_lstm", {}, InputSpec((9,), 10), "sequence of tokens"),
        ("mlp", {"hidden": [0]}, InputSpec((9,), 10), "whole number"),
        ("logistic", {"init": "ones"}, InputSpec((9,), 10), "not known"),
    ],
)
def test_what_cannot_be_built_is_refused(name, table, spec, words):
    """
    Too small an image, the wrong kind of record or a nonsensical size is a configuration error, before any torch.
    """
    with pytest.raises(ConfigError, match=words):
        models.build(name, table).shapes(spec)


def test_logistic_starts_where_it_is_told():
    """
    `zeros` predicts one half for everyone; `uniform` does not.
    """
    for init, zero in (("zeros", True), ("uniform", False)):
        module = models.build("logistic", {"init": init}).build(InputSpec((4,), 2), seed=1)
        assert (not any(parameter.any() for parameter in module.parameters())) == zero


def test_descriptions_do_not_import_torch():
    """
    `sordino plan` and `sordino list` read models, objectives and plans without the weight of torch.
    """
    code = (
        "import sys, sordino.local.models as m, sordino.local.objectives, sordino.local.trainers.plans\n"
        "m.parameter_count(m.models.example('cnn'), m.InputSpec((1, 28, 28), 10))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_scales_change_the_steps_of_a_network_and_not_its_function():
    """A scaled layer starts as the same function; one step in the stored parameters moves it scale² as far."""
    spec = InputSpec((1, 28, 28), classes=10)
    plain, scaled = (models.build("cnn", table).build(spec, 0) for table in ({}, {"scales": [1, 2, 0.7, 1.5]}))
    x = torch.rand(3, 1, 28, 28)

    torch.testing.assert_close(plain(x), scaled(x), rtol=1e-4, atol=1e-5)
    for module in (plain, scaled):
        module(x)[:, 0].sum().backward()
    torch.testing.assert_close(plain.conv2.weight.grad * 2, scaled.conv2.weight.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plain.hidden.weight.grad * 0.7, scaled.hidden.weight.grad, rtol=1e-4, atol=1e-5)
