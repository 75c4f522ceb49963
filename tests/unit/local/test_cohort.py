"""Clients side by side: what each would do alone, whatever their sizes, the model and the way."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.local.clipping._engine import Unsupported
from sordino.local.cohort import buckets as buckets_file
from sordino.local.cohort.buckets import Member, Padded, buckets
from sordino.local.cohort.choice import choose_plain
from sordino.local.cohort.mapped import Mapped
from sordino.local.cohort.plain import train_plain_many
from sordino.local.cohort.twin import Twin
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.probe import synthetic
from sordino.local.trainers.plans import PlainSteps
from sordino.local.trainers.sgd import batches, train_plain

torch.set_num_threads(1)

WAYS = {"vmap": Mapped, "stacked": Twin}
SPECS = {
    "logistic": (InputSpec((6,), classes=2), {}),
    "mlp": (InputSpec((6,), classes=3), {"hidden": [5]}),
    "cnn": (InputSpec((2, 6, 6), classes=3), {"channels": [3], "kernel": 3, "hidden": 4}),
    "char_lstm": (InputSpec((4,), classes=5, vocabulary=5), {"embedding": 3, "hidden": 4}),
}
PLAIN = objectives.example("plain")


def built(name):
    spec, options = SPECS[name]
    model = models.build(name, options).build(spec, seed=1)
    if name == "logistic":
        Layout.of(model).restore(model, stream(1, "start").normal(size=Layout.of(model).size).astype(np.float32))
    return model, spec


def silos(spec, sizes):
    made = [synthetic(spec, max(size, 1), seed) for seed, size in enumerate(sizes)]
    return [(x.numpy()[:size], y.numpy()[:size], None) for (x, y), size in zip(made, sizes, strict=True)]


def rngs(sizes):
    return [stream(3, "shuffle", i) for i in range(len(sizes))]


def alone(model, start, datas, plan, objective=PLAIN):
    parts = model, Layout.of(model)
    each = zip(datas, rngs(datas), strict=True)
    return np.stack([train_plain(*parts, data, start, plan, rng, objective, loss=cross_entropy) for data, rng in each])


def together(stack, start, datas, plan, objective=PLAIN):
    members = [Member(len(data[1]), lambda data=data: data) for data in datas]
    changes = dict(train_plain_many(stack, members, start, plan, rngs(datas).__getitem__, objective))
    assert sorted(changes) == list(range(len(datas)))
    return np.stack([changes[i] for i in range(len(datas))])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SPECS)
class TestEveryWayAndModel:
    @settings(max_examples=8)
    @given(
        sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6),
        batch_size=st.sampled_from([None, 1, 2, 4]),
        epochs=st.integers(1, 2),
        momentum=st.sampled_from([0.0, 0.9]),
        objective=st.sampled_from(["plain", "fedprox"]),
    )
    def test_everybody_does_what_they_would_alone(self, way, name, sizes, batch_size, epochs, momentum, objective):
        """
        Shuffles, last batches, who has stopped, momentum and pulls included.
        """
        model, spec = built(name)
        start, datas = Layout.of(model).flatten(model), silos(spec, sizes)
        plan = PlainSteps(lr=0.1, epochs=epochs, batch_size=batch_size, momentum=momentum)
        stack = WAYS[way](model, cross_entropy)

        side_by_side = together(stack, start, datas, plan, objectives.example(objective))
        expected = alone(model, start, datas, plan, objectives.example(objective))

        assert np.allclose(side_by_side, expected, rtol=1e-5, atol=1e-5)
        assert expected.any() == any(size > 0 for size in sizes)

    def test_clients_may_start_apart(self, way, name):
        """
        Each is pulled to its own start.
        """
        model, spec = built(name)
        sizes, plan = [5, 2, 8], PlainSteps(lr=0.1, epochs=2, batch_size=2, momentum=0.9)
        datas, layout, pull = silos(spec, sizes), Layout.of(model), objectives.example("fedprox")
        starts = layout.flatten(model) + stream(4, "starts").normal(size=(3, layout.size), scale=0.2).astype(np.float32)
        side_by_side = together(WAYS[way](model, cross_entropy), starts, datas, plan, pull)
        each = zip(starts, datas, rngs(sizes), strict=True)
        expected = [train_plain(model, layout, data, start, plan, rng, pull) for start, data, rng in each]
        assert np.allclose(side_by_side, expected, rtol=1e-4, atol=1e-5)

    def test_one_who_diverges_disturbs_nobody(self, way, name):
        """
        All NaN for the client with an impossible record, nothing changed for the others.
        """
        model, spec = built(name)
        start, datas = Layout.of(model).flatten(model), silos(spec, [3, 4, 3])
        if spec.vocabulary is not None:
            pytest.skip("tokens are always finite")
        datas[1][0][2] = np.inf
        plan = PlainSteps(lr=0.1, epochs=2, batch_size=2)

        changes = together(WAYS[way](model, cross_entropy), start, datas, plan)

        assert np.isnan(changes[1]).all()
        assert np.allclose(changes[[0, 2]], alone(model, start, datas, plan)[[0, 2]], atol=1e-5)

    def test_the_model_itself_is_left_alone(self, way, name):
        """
        Parameters, hooks, modes and gradients are as they were.
        """
        model, spec = built(name)
        start, before = Layout.of(model).flatten(model), str(model)
        together(WAYS[way](model, cross_entropy), start, silos(spec, [2, 3]), PlainSteps(lr=1.0, steps=2))
        assert np.array_equal(Layout.of(model).flatten(model), start)
        assert str(model) == before
        assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("fault", ["padding counts", "who is done steps on"])
def test_a_broken_mask_is_found_out(fault, monkeypatch):
    """
    Negative control: the comparison above fails when padding has weight, or when momentum moves who is done.
    """
    model, spec = built("mlp")
    start, datas = Layout.of(model).flatten(model), silos(spec, [2, 4, 4])
    plan = PlainSteps(lr=0.1, epochs=1, batch_size=2, momentum=0.9)
    expected = alone(model, start, datas, plan)
    if fault == "padding counts":
        plan = PlainSteps(lr=0.1, epochs=1, momentum=0.9)
        expected = alone(model, start, datas, plan)
        monkeypatch.setattr(Padded, "weights", property(lambda self: torch.ones_like(self.present) / len(self.present)))
    else:
        nothing = np.empty(0, np.int64)
        monkeypatch.setattr(
            "sordino.local.cohort.plain.batches",
            lambda *arguments: (steps := list(batches(*arguments))) + [nothing] * (2 - len(steps)),
        )
    assert not np.allclose(together(Twin(model, cross_entropy), start, datas, plan), expected, atol=1e-4)


class TestBuckets:
    @given(sizes=st.lists(st.integers(0, 300), max_size=40), batch_size=st.one_of(st.none(), st.integers(1, 50)))
    def test_everybody_is_in_one_bucket_of_like_sizes(self, sizes, batch_size):
        """
        Padding at most doubles the work, and neither parameters nor records exceed their limits.
        """
        made = list(buckets(sizes, batch_size, parameters=100_000))
        assert sorted(i for bucket in made for i in bucket) == list(range(len(sizes)))
        for bucket in made:
            own = [sizes[i] for i in bucket]
            assert 2 * min(own) >= max(own)
            rows = max(own) if batch_size is None else min(batch_size, max(own))
            assert len(bucket) == 1 or len(bucket) * rows <= buckets_file.ROWS
            assert len(bucket) * 100_000 <= buckets_file.ENTRIES

    def test_more_clients_than_fit_are_trained_all_the_same(self, monkeypatch):
        """
        Three buckets instead of one.
        """
        monkeypatch.setattr(buckets_file, "ROWS", 8)
        model, spec = built("mlp")
        start, datas = Layout.of(model).flatten(model), silos(spec, [4] * 5)
        plan = PlainSteps(lr=0.1, steps=2)
        changes = together(Twin(model, cross_entropy), start, datas, plan)
        assert np.allclose(changes, alone(model, start, datas, plan), atol=1e-5)


class Tied(nn.Module):
    """An embedding whose table is also the head's weight, and a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.twice = nn.Linear(4, 4, bias=False)
        self.frozen = nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.head = nn.Linear(4, 5)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        h = torch.tanh(self.twice(torch.tanh(self.twice(self.embedding(x)))))
        return self.head(self.frozen(h).mean(1))


def test_tied_and_reused_parameters():
    """
    All uses of a parameter count, and a frozen layer serves everybody.
    """
    torch.nn.init.normal_((model := Tied()).embedding.weight, generator=torch.Generator().manual_seed(1))
    start, datas = Layout.of(model).flatten(model), silos(InputSpec((3,), 5, vocabulary=5), [3, 2, 0])
    plan = PlainSteps(lr=0.5, epochs=2, batch_size=2)
    changes = together(Twin(model, cross_entropy), start, datas, plan)
    assert np.allclose(changes, alone(model, start, datas, plan), atol=1e-5)


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(6), nn.Embedding(6, 3, padding_idx=0), nn.Conv2d(1, 1, 3, padding="same")]
)
def test_a_layer_without_a_stacked_form_is_refused(layer):
    """
    By name, so that it can be frozen or the loop be used.
    """
    with pytest.raises(Unsupported, match="layer='0'"):
        Twin(nn.Sequential(layer, nn.Linear(6, 2)), cross_entropy)


class Deciding(nn.Module):
    """Control flow that depends on values: vmap cannot map it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x if float(x.detach().sum()) > -1e9 else -x)


class Centred(nn.Module):
    """Subtracts the batch's mean: examples influence each other, so clients would."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x - x.mean(0))


class TestChoice:
    SPEC = InputSpec((6,), classes=3)

    def test_a_small_model_trains_in_company(self):
        """
        Sixteen logistic regressions one by one lose by far; the model's parameters are as they were.
        """
        model, spec = built("logistic")
        before = Layout.of(model).flatten(model)
        assert choose_plain(model, cross_entropy, spec, examples=8) is not None
        assert np.array_equal(Layout.of(model).flatten(model), before)

    @pytest.mark.parametrize(("way", "kind"), [("vmap", Mapped), ("stacked", Twin), ("loop", type(None))])
    def test_what_is_asked_for_is_taken(self, way, kind):
        """
        Without measuring.
        """
        model, spec = built("mlp")
        assert type(choose_plain(model, cross_entropy, spec, 4, way)) is kind

    @pytest.mark.parametrize(
        ("model", "way"),
        [
            (Deciding(), "vmap"),
            (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), "vmap"),
            (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), "stacked"),
            (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)), "stacked"),
            (Centred(), "stacked"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else value,
    )
    def test_a_way_that_does_not_suit_the_model_is_refused(self, model, way):
        """
        What cannot be mapped, what draws, what has no stacked form, and what mixes examples.
        """
        with pytest.raises(ConfigError, match=f"cohort='{way}'"):
            choose_plain(model, cross_entropy, self.SPEC, 4, way)

    def test_auto_takes_what_is_left(self):
        """
        A model that cannot be mapped can still be stacked or looped; one that mixes examples is mapped or looped.
        """
        assert not isinstance(choose_plain(Deciding(), cross_entropy, self.SPEC, 4), Mapped)
        assert not isinstance(choose_plain(Centred(), cross_entropy, self.SPEC, 4), Twin)

    def test_large_and_pretrained_models_are_alone(self):
        """
        Frozen parameters count too.
        """
        big = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 2_000_000).requires_grad_(requires_grad=False))
        assert choose_plain(big, cross_entropy, self.SPEC, 4) is None
        pretrained = InputSpec((6,), classes=3, folder="somewhere")
        assert choose_plain(nn.Linear(6, 3), cross_entropy, pretrained, 4) is None
