"""Features of a frozen base: computed once for each text, and the same logits and gradients as without."""

import numpy as np
import pytest
import torch

from sordino.local.clipping import Clip, engines
from sordino.local.losses import cross_entropy
from sordino.local.models import models
from tiny_lm import LENGTH, spec_of, texts, tiny

torch.set_num_threads(1)


def built(folder, family="bert", **keys):
    tiny(folder, family)
    table = {"base": str(folder), "length": LENGTH, "adapter": {"head": {}}, **keys}
    return models.build("text_classifier", table).build(spec_of(folder), 0)


def opened(clipped):
    return getattr(clipped.total, "_BoundedSum__vector")  # noqa: B009 - the name is mangled on purpose


def without(model):
    """The same model, computed anew every time."""
    model.features.usable = False
    return model


def test_logits_and_gradients_are_those_of_the_whole_network(tmp_path):
    """
    Known texts, new ones and a mixture; after the head has moved, too.
    """
    kept, anew = built(tmp_path / "a"), without(built(tmp_path / "a"))
    x, y = texts(lengths=(10, 7, 3, 1, 5, 5))
    for rows in ([0, 1], [2, 0, 3], [1, 1, 0], [4, 5]):
        assert torch.allclose(kept(x[rows]), anew(x[rows]), atol=1e-6)
    for model in (kept, anew):
        torch.nn.init.ones_(model.network.classifier.weight[:1].detach())
    sums = [
        opened(engines.build("bookkeeping", {}).clipped_sum(m, cross_entropy, (x, y), Clip(0.1))) for m in (kept, anew)
    ]

    assert np.linalg.norm(sums[0] - sums[1]) <= 1e-5 * np.linalg.norm(sums[1])


def test_a_text_goes_through_the_base_once(tmp_path):
    """
    Repeats within a batch and over batches are looked up.
    """
    model, calls = built(tmp_path / "a"), []
    model.network.bert.register_forward_pre_hook(
        lambda _, args, kwargs: calls.append(len(kwargs["attention_mask"])), with_kwargs=True
    )
    x, _ = texts(lengths=(10, 7, 3, 1))
    model(x)
    model(x[[0, 0, 3]])
    model(torch.cat([x[:1], x[:1]]))

    assert calls == [4]


@pytest.mark.parametrize(
    ("family", "keys"), [("llama", {}), ("roberta", {}), ("bert", {"dropout": 0.1}), ("bert", {"adapter": {"ffa": {}}})]
)
def test_everything_else_is_computed_as_ever(tmp_path, family, keys):
    """
    A head that takes every position, dropout, or an adapter inside the base: nothing is kept.
    """
    model = built(tmp_path / "a", family, **keys)
    x, _ = texts()
    model.eval()

    assert torch.allclose(model(x), model(x))
    assert model.features is None or not model.features.usable
