"""Every adapter on an encoder and a decoder: described without torch, drawn from the seed, saved as PEFT loads it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

pytest.importorskip("peft")

from sordino.core.errors import ConfigError, PrivacyError
from sordino.local.adapters import adapters, chosen
from sordino.local.clipping import Clip, engines
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import models, parameter_count
from sordino.local.probe import probe
from tiny_lm import LENGTH, PADDING, spec_of, texts, tiny

MODELS = {"classify": "text_classifier", "continue": "causal_lm"}
KINDS = [("bert", "classify"), ("llama", "classify"), ("llama", "continue")]
CASES = [(name, *kind) for name in adapters.names() for kind in KINDS if not (name == "head" and kind[1] == "continue")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny bases of several architectures, written once."""
    folder = tmp_path_factory.mktemp("bases")
    return {
        family: tiny(folder / family, family) for family in ("bert", "llama", "gpt2", "distilbert", "roberta", "qwen2")
    }


def described(name, task, keys=None):
    """A model with an adapter of a name, by its example or other keys."""
    keys = adapters.get(name).example if keys is None else keys
    return models.build(MODELS[task], {"base": "tiny", "length": LENGTH, "adapter": {name: keys}})


def built(folders, name, family, task, seed=1, keys=None):
    return described(name, task, keys).build(spec_of(folders[family], task), seed)


def opened(total):
    """The values of a bounded sum, which only a test may look at."""
    return getattr(total, "_BoundedSum__vector")  # noqa: B009 - the name is mangled on purpose


def moved(module):
    """The module with random released parameters, as after some training."""
    layout = Layout.of(module)
    vector = torch.randn(layout.size, generator=torch.Generator().manual_seed(5)) * 0.3
    layout.restore(module, vector.numpy())
    return module


@pytest.mark.parametrize(("name", "family", "task"), CASES)
class TestEveryAdapter:
    def test_is_what_its_description_says(self, folders, name, family, task):
        """
        Names, shapes and order of all that is trained are read off the files; nothing else is trainable.
        """
        model, spec = described(name, task), spec_of(folders[family], task)
        module = model.build(spec, seed=1)

        trained = tuple((key, tuple(p.shape)) for key, p in module.named_parameters() if p.requires_grad)

        assert model.shapes(spec) == trained
        assert parameter_count(model, spec) == Layout.of(module).size
        assert module.training

    def test_comes_from_the_seed_alone(self, folders, name, family, task):
        """
        Equal seeds give equal networks, frozen parts included, and torch's global generator is not touched.
        """
        before = torch.get_rng_state()
        first = built(folders, name, family, task).state_dict()
        assert torch.equal(torch.get_rng_state(), before)
        second, other = (built(folders, name, family, task, seed).state_dict() for seed in (1, 2))

        assert all(torch.equal(first[key], second[key]) for key in first)
        assert any(not torch.equal(first[key], other[key]) for key in first)

    def test_passes_the_probe(self, folders, name, family, task):
        """
        Texts of different lengths do not reach each other's loss.
        """
        probe(moved(built(folders, name, family, task)), cross_entropy, *texts(task))

    @pytest.mark.parametrize("engine", ["opacus", "bookkeeping"])
    def test_has_the_gradients_of_the_oracle(self, folders, engine, name, family, task):
        """
        Per-example gradients, clipped and summed, are those of one example at a time.
        """
        module, batch = moved(built(folders, name, family, task)), texts(task)

        sums = [
            opened(engines.example(kind).clipped_sum(module, cross_entropy, batch, Clip(0.5)).total)
            for kind in ("oracle", engine)
        ]

        assert abs(sums[0]).max() > 1e-4
        assert abs(sums[0] - sums[1]).max() <= 1e-5 * abs(sums[0]).max()

    def test_loads_in_plain_peft(self, folders, tmp_path, name, family, task):
        """
        `PeftModel.from_pretrained` on the plain base gives the same logits.
        """
        module = moved(built(folders, name, family, task))
        module.save(tmp_path)
        x, _ = texts(task)

        if not module.adapter.plain(module.base):
            # PEFT 0.21 looks for an argument that transformers 5.24 renamed; where it no longer fails, say so.
            with pytest.raises(ValueError, match="past key values"):
                plain_peft(folders[family], tmp_path, task, x)
            return
        expected = plain_peft(folders[family], tmp_path, task, x)

        counted = (x != PADDING)[..., None] if task == "continue" else True
        torch.testing.assert_close(module(x) * counted, expected * counted, rtol=1e-4, atol=1e-5)


def plain_peft(base: Path, adapter: Path, task: str, x: torch.Tensor) -> torch.Tensor:
    """What a stranger does: transformers loads the base, PEFT the adapter."""
    import peft
    import transformers

    kind = transformers.AutoModelForSequenceClassification if task == "classify" else transformers.AutoModelForCausalLM
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers and PEFT about each other
        network = kind.from_pretrained(base)
        model = peft.PeftModel.from_pretrained(network, adapter).eval()
        return model(input_ids=x, attention_mask=(x != PADDING).long()).logits


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("lora", {"rank": 0}, "whole number"),
        ("lora", {"alpha": -1.0}, "above 0"),
        ("lora", {"targets": ["q_prj"]}, "did you mean 'q_proj'"),
        ("lora", {"layers": [2]}, "0 to 1"),
        ("head", {}, "continues text"),
    ],
)
def test_what_cannot_be_attached_is_refused(folders, name, keys, words):
    """
    A nonsensical size, an unknown map or layer, and a head where there is none, before any torch.
    """
    with pytest.raises(ConfigError, match=words):
        described(name, "continue", keys).shapes(spec_of(folders["llama"], "continue"))


def test_a_private_b_is_refused_with_the_reason():
    """
    FedSA's local B makes every example's gradient depend on every record.
    """
    with pytest.raises(PrivacyError, match="no clip bounds that"):
        chosen("model.adapter", {"fedsa": {"rank": 4}})
