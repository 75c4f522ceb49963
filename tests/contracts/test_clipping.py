"""Every clipping engine on every model: the oracle's sum, the promised sensitivity; and four broken twins."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from sordino.core.errors import PrivacyError
from sordino.core.types import Unit
from sordino.local.clipping import Clip, Clipped, engines
from sordino.local.layout import Layout, trainable
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.probe import synthetic
from sordino.privacy.kernel import certify

torch.set_num_threads(1)

FAST = [name for name in engines.names() if name != "oracle"]
SPECS = {
    "logistic": InputSpec((6,), classes=2),
    "mlp": InputSpec((6,), classes=3),
    "cnn": InputSpec((1, 8, 8), classes=4),
    "char_lstm": InputSpec((5,), classes=7, vocabulary=7),
}
NORM = 0.5


def opened(total):
    """The values of a bounded sum, which only a test may look at."""
    return getattr(total, "_BoundedSum__vector")  # noqa: B009 - the name is mangled on purpose


def clipped_sum(engine, model, batch, norm=NORM, groups=None):
    unit = Unit.RECORD if groups is None else Unit.USER
    result = engine.clipped_sum(model, cross_entropy, batch, Clip(norm, unit), groups)
    assert result.total.l2 == norm
    assert result.total.unit is unit
    return opened(result.total)


def distance(a, b):
    return float(np.linalg.norm(a - b))


def model_of(name):
    return models.example(name).build(SPECS[name], seed=3)


def scaled(batch, factor):
    x, y = batch
    return (x * factor if x.is_floating_point() else x), y


@pytest.fixture(params=FAST)
def engine(request):
    return engines.example(request.param)


def test_gradients_left_on_the_model_do_not_count(engine):
    """Whoever trained the module before may have left some; the first use of an engine must not see them."""
    model = model_of("mlp")
    batch = synthetic(SPECS["mlp"], 5)
    expected = clipped_sum(engines.example("oracle"), model, batch)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert np.allclose(clipped_sum(engine, model, batch), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(SPECS))
class TestEveryModel:
    @pytest.mark.parametrize("norm", [0.05, 1.0, 100.0])
    def test_equals_the_oracle(self, engine, name, norm):
        """
        Most, some or no examples clipped: the sum is the oracle's to 1e-5.
        """
        model, batch = model_of(name), scaled(synthetic(SPECS[name], examples=9), 3.0)

        expected = clipped_sum(engines.example("oracle"), model, batch, norm)

        assert distance(clipped_sum(engine, model, batch, norm), expected) <= 1e-5 * np.linalg.norm(expected)

    def test_people_equal_the_oracle(self, engine, name):
        """
        The unit user clips the mean gradient of each person, however examples are ordered.
        """
        model, batch = model_of(name), synthetic(SPECS[name], examples=9)
        groups = np.array(["eve", "bob", "eve", "ann", "bob", "eve", "eve", "dan", "bob"])

        expected = clipped_sum(engines.example("oracle"), model, batch, groups=groups)

        assert distance(clipped_sum(engine, model, batch, groups=groups), expected) <= 1e-5 * np.linalg.norm(expected)

    def test_one_record_moves_the_sum_by_at_most_the_norm(self, engine, name):
        """
        The definition of sensitivity, for every record of a batch of large and unlike ones.
        """
        assert worst_move(engine, model_of(name), *scaled(synthetic(SPECS[name], examples=6), 10.0)) <= 1 + 1e-5

    def test_an_empty_batch_sums_to_zero(self, engine, name):
        """
        No example, same bound, zero sum.
        """
        model, (x, y) = model_of(name), synthetic(SPECS[name])

        assert not clipped_sum(engine, model, (x[:0], y[:0])).any()
        assert not clipped_sum(engine, model, (x[:0], y[:0]), groups=np.array([])).any()

    def test_nothing_stays_on_the_model(self, engine, name):
        """
        Parameters, buffers, hooks and attributes are as before after a call; there is no `.grad`.
        """
        model, batch = model_of(name), synthetic(SPECS[name])
        before = Layout.of(model).flatten(model)

        clipped_sum(engine, model, batch)
        assert all(parameter.grad is None for parameter in model.parameters())

        fresh = model_of(name)
        assert np.array_equal(Layout.of(model).flatten(model), before)
        for part, new in zip(model.modules(), fresh.modules(), strict=True):
            assert vars(part).keys() == vars(new).keys()
            assert not part._forward_hooks
            assert not part._backward_hooks
        for parameter, new in zip(model.parameters(), fresh.parameters(), strict=True):
            assert vars(parameter).keys() == vars(new).keys()


class TestEveryEngine:
    @pytest.mark.parametrize("chunk", [1, 2, 3, 100])
    @pytest.mark.parametrize("kind", ["bookkeeping", "vmap", "opacus"])
    def test_chunks_do_not_change_the_sum(self, kind, chunk):
        """
        Cutting the examples into chunks of any size, through people or not, changes nothing but rounding.
        """
        model, batch = model_of("mlp"), synthetic(SPECS["mlp"], examples=11)
        groups = np.array([4, 1, 4, 1, 0, 4, 2, 4, 4, 1, 9])
        cut = engines.build(kind, {"chunk": chunk})

        for people in (None, groups):
            whole = clipped_sum(engines.example("oracle"), model, batch, groups=people)
            assert distance(clipped_sum(cut, model, batch, groups=people), whole) <= 1e-5

    @pytest.mark.parametrize("name", engines.names())
    @pytest.mark.parametrize("kind", ["mlp", "cnn"])
    def test_bad_examples_count_as_zero(self, name, kind):
        """
        NaN and infinite examples add nothing, are counted, and leave the share of all others as it was.
        """
        engine, model, (x, y) = engines.example(name), model_of(kind), synthetic(SPECS[kind], examples=6)
        x[1], x[4, 0] = float("nan"), float("inf")
        good = [0, 2, 3, 5]

        result = engine.clipped_sum(model, cross_entropy, (x, y), Clip(NORM))

        assert result.nonfinite == 2
        assert distance(opened(result.total), clipped_sum(engine, model, (x[good], y[good]))) <= 1e-6

    @pytest.mark.parametrize("name", engines.names())
    def test_a_bad_example_takes_out_its_person_only(self, name):
        """
        A person with one NaN example counts as zero; other people keep their share.
        """
        engine, model, (x, y) = engines.example(name), model_of("mlp"), synthetic(SPECS["mlp"], examples=6)
        x[1] = float("nan")
        groups = np.array([0, 1, 1, 2, 0, 2])

        result = engine.clipped_sum(model, cross_entropy, (x, y), Clip(NORM, Unit.USER), groups)

        assert result.nonfinite == 1
        kept = groups != 1
        assert (
            distance(opened(result.total), clipped_sum(engine, model, (x[kept], y[kept]), groups=groups[kept])) <= 1e-6
        )

    @pytest.mark.parametrize("size", [1e20, 1e30, 1e-8, 1e-30])
    @pytest.mark.parametrize("name", engines.names())
    def test_extreme_gradients_neither_overflow_nor_vanish(self, name, size):
        """
        A gradient of 1e20 is clipped to the norm exactly, one of 1e-8 is kept; the others' share is untouched.
        """
        engine, model, (x, y) = engines.example(name), model_of("logistic"), synthetic(SPECS["logistic"], examples=4)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        model.linear.bias.requires_grad_(requires_grad=False)
        x[2] = size
        rest = [0, 1, 3]

        alone = clipped_sum(engine, model, (x[2:3], y[2:3]))

        assert np.linalg.norm(alone) == pytest.approx(min(NORM, 0.5 * size * 6**0.5), rel=1e-6)
        moved = clipped_sum(engine, model, (x, y)) - clipped_sum(engine, model, (x[rest], y[rest]))
        assert distance(moved, alone) <= 1e-6

    @pytest.mark.parametrize("name", engines.names())
    def test_one_person_moves_the_sum_by_at_most_the_norm(self, name):
        """
        Sensitivity for people: removing all examples of any one person.
        """
        engine, model = engines.example(name), model_of("mlp")
        x, y = scaled(synthetic(SPECS["mlp"], examples=12), 10.0)
        groups = np.arange(12) % 4
        whole = clipped_sum(engine, model, (x, y), groups=groups)

        for person in range(4):
            kept = groups != person
            without = clipped_sum(engine, model, (x[kept], y[kept]), groups=groups[kept])
            assert distance(whole, without) <= NORM * (1 + 1e-5)

    @pytest.mark.parametrize("name", engines.names())
    def test_units_and_person_ids_must_fit(self, name):
        """
        A client is not protected inside a silo; users need ids, records must not have them; lengths must agree.
        """
        engine, model, (x, y) = engines.example(name), model_of("mlp"), synthetic(SPECS["mlp"])
        for unit, groups in [(Unit.CLIENT, None), (Unit.USER, None), (Unit.RECORD, np.arange(4)), (Unit.USER, [0])]:
            with pytest.raises(PrivacyError, match="clip"):
                engine.clipped_sum(model, cross_entropy, (x, y), Clip(1.0, unit), groups)

    @pytest.mark.parametrize("name", engines.names())
    def test_a_scalar_loss_is_refused(self, name):
        """
        A mean over the batch is not one loss per example.
        """
        engine, model = engines.example(name), model_of("mlp")
        with pytest.raises(PrivacyError, match="one entry per example"):
            engine.clipped_sum(model, lambda out, y: cross_entropy(out, y).mean(), synthetic(SPECS["mlp"]), Clip(1.0))

    @pytest.mark.parametrize("name", engines.names())
    def test_frozen_unused_and_shared_parameters(self, name):
        """
        Frozen ones are left out, an unused layer has zero gradient, a shared tensor counts once with both its uses.
        """
        torch_model = Odd()
        engine, batch = engines.example(name), synthetic(InputSpec((4,), classes=4), examples=5)

        result = clipped_sum(engine, torch_model, batch)

        expected = clipped_sum(engines.example("oracle"), torch_model, batch)
        assert result.size == sum(parameter.numel() for parameter in trainable(torch_model).values())
        assert distance(result, expected) <= 1e-6

    @pytest.mark.parametrize("name", engines.names())
    def test_one_engine_serves_many_models(self, name):
        """
        Going from model to model and back gives what fresh engines give.
        """
        engine, kinds = engines.example(name), ["mlp", "logistic", "mlp"]
        for kind in kinds:
            model, batch = model_of(kind), synthetic(SPECS[kind])
            expected = clipped_sum(engines.example("oracle"), model, batch)
            assert distance(clipped_sum(engine, model, batch), expected) <= 1e-6


class Odd(nn.Module):
    """A frozen layer, an unused layer, and one weight used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.unused = nn.Linear(4, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).sin().view_as(parameter))

    def forward(self, x):
        return self.second(torch.tanh(self.frozen(self.first(x))))


class Branching(nn.Module):
    """Control flow that depends on values: vmap cannot map it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x) if float(x.sum()) > -1e9 else self.linear(-x)


class Functional(nn.Module):
    """A layer's weight used both by its call and outside it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return torch.tanh(self.linear(x)) @ self.linear.weight


class TimeFirst(nn.Module):
    """A layer that sees positions first and examples second."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, x):
        return self.linear(x.view(-1, 3, 2).transpose(0, 1)).sum(dim=0)


def sequence(*layers):
    model, generator = nn.Sequential(*layers), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    return model


ODD = {
    "layer norm": lambda: sequence(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
    "padding by name": lambda: sequence(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(12, 3)
    ),
    "in place": lambda: sequence(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)),
    "weight used outside its call": Functional,
    "positions first": TimeFirst,
    "control flow on values": Branching,
}


@pytest.mark.parametrize("kind", ODD)
def test_auto_finds_an_engine(kind):
    """
    Whatever book-keeping has no formula for, or vmap cannot map, is still trained, with the oracle's sum.
    """
    model, batch, auto = ODD[kind](), synthetic(SPECS["mlp"]), engines.example("auto")
    expected = clipped_sum(engines.example("oracle"), model, batch)

    for _ in range(2):
        assert distance(clipped_sum(auto, model, batch), expected) <= 1e-6
    if kind in ("padding by name", "weight used outside its call", "positions first"):
        with pytest.raises(PrivacyError, match=r"engine\.bookkeeping"):
            clipped_sum(engines.example("bookkeeping"), model, batch)


LAYERS = {
    "strided": (lambda: sequence(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(64, 3)), (2, 8, 8)),
    "grouped": (lambda: sequence(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(144, 3)), (2, 8, 8)),
    "dilated": (lambda: sequence(nn.Conv2d(2, 4, (3, 2), dilation=2), nn.Flatten(), nn.Linear(96, 3)), (2, 8, 8)),
    "one channel": (lambda: sequence(nn.Conv2d(1, 4, 5), nn.Flatten(), nn.Linear(64, 3)), (1, 8, 8)),
    "one channel, padded": (
        lambda: sequence(nn.Conv2d(1, 4, (5, 4), padding=(2, 0)), nn.Flatten(), nn.Linear(128, 3)),
        (1, 8, 7),
    ),
    "one channel, padded wider": (
        lambda: sequence(nn.Conv2d(1, 2, 4, padding=4), nn.Flatten(), nn.Linear(338, 3)),
        (1, 8, 8),
    ),
    "one channel, strided": (lambda: sequence(nn.Conv2d(1, 4, 4, stride=2), nn.Flatten(), nn.Linear(36, 3)), (1, 8, 8)),
    "one channel, dilated": (
        lambda: sequence(nn.Conv2d(1, 4, 4, dilation=2), nn.Flatten(), nn.Linear(16, 3)),
        (1, 8, 8),
    ),
    "one channel, 1d": (lambda: sequence(nn.Conv1d(1, 4, 17), nn.Flatten(), nn.Linear(32, 3)), (1, 24)),
    "small weight": (lambda: sequence(nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)), (8, 2)),
    "large weight": (lambda: sequence(nn.Linear(9, 30), nn.Tanh(), nn.Flatten(), nn.Linear(60, 3)), (2, 9)),
}


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_of_every_shape(kind, name):
    """
    Convolutions of all kinds, and linear maps over positions with small and large weights.
    """
    make, shape = LAYERS[kind]
    model, batch = make(), synthetic(InputSpec(shape, classes=3), examples=5)
    expected = clipped_sum(engines.example("oracle"), model, batch)

    assert distance(clipped_sum(engines.example(name), model, batch), expected) <= 1e-6


def test_vmap_needs_straight_code():
    """
    A model with control flow on values is not mapped wrongly: it raises, and `auto` goes on to hooks.
    """
    with pytest.raises(RuntimeError):
        clipped_sum(engines.example("vmap"), Branching(), synthetic(SPECS["mlp"]))


def test_hooks_refuse_what_they_cannot_see():
    """
    A trainable module in eval mode records nothing, and trainable batch norm has no per-example gradient.
    """
    batch, hooks = synthetic(SPECS["mlp"]), engines.example("opacus")

    with pytest.raises(PrivacyError, match="eval mode"):
        clipped_sum(hooks, model_of("mlp").eval(), batch)
    with pytest.raises(PrivacyError, match="refuses the model"):
        clipped_sum(hooks, nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), batch)


def test_the_oracle_equals_the_formula():
    """
    Logistic regression by hand: the gradient of one record is (p - y) (x, 1).
    """
    model, (x, y) = model_of("logistic"), synthetic(SPECS["logistic"], examples=8)
    features = np.hstack([x.numpy().astype(np.float64), np.ones((8, 1))])
    residual = 0.5 - y.numpy()  # zero weights predict one half
    gradients = residual[:, None] * features
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)

    expected = (gradients * np.minimum(1, NORM / norms)).sum(axis=0)

    assert distance(clipped_sum(engines.example("oracle"), model, (x, y)), expected) <= 1e-6


def worst_move(engine, model, x, y):
    """Over all removed records, how far the sum moves, in units of the norm."""
    whole = clipped_sum(engine, model, (x, y))
    kept = [torch.arange(len(x)) != i for i in range(len(x))]
    return max(distance(whole, clipped_sum(engine, model, (x[rows], y[rows]))) for rows in kept) / NORM


@dataclass
class Twin:
    """An engine with one classic fault: `combine` gets per-example gradients as a list of tensors (n, numel)."""

    combine: object

    def clipped_sum(self, model, loss, batch, clip, groups=None):
        x, y = batch
        parameters = list(trainable(model).values())
        each = [torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1])[0], parameters) for i in range(len(x))]
        rows = [torch.stack([g[k].reshape(-1) for g in each]).double() for k in range(len(parameters))]
        return Clipped(certify(self.combine(rows, clip.norm).numpy(), unit=clip.unit, l2=clip.norm), 0)


def clip(rows, norm):
    return rows * (norm / rows.norm(dim=1, keepdim=True)).clamp(max=1)


TWINS = {
    "sound": lambda rows, norm: clip(torch.cat(rows, 1), norm).sum(0),
    "clip of the batch mean": lambda rows, norm: clip(torch.cat(rows, 1).mean(0, keepdim=True), norm)[0],
    "clamp of coordinates": lambda rows, norm: torch.cat(rows, 1).clamp(-norm, norm).sum(0),
    "norm per tensor": lambda rows, norm: torch.cat([clip(part, norm) for part in rows], 1).sum(0),
    "realised denominator": lambda rows, norm: clip(torch.cat(rows, 1), norm).mean(0) * 6,
}


@pytest.mark.parametrize("fault", TWINS)
def test_broken_twins_exceed_the_bound(fault):
    """
    Large gradients, one of them opposite: every fault moves the sum by more than the norm, the sound twin does not.
    """
    x, y = torch.full((6, 6), 1.0), torch.tensor([0, 0, 0, 0, 0, 1])
    x[5] *= 20

    move = worst_move(Twin(TWINS[fault]), model_of("logistic"), x, y)

    assert (move <= 1 + 1e-5) == (fault == "sound")
    assert fault == "sound" or move > 1.2


@pytest.mark.parametrize("name", ["auto", "bookkeeping", "vmap", "opacus"])
def test_a_lone_example_is_computed_as_one_of_two_is(name):
    """torch's kernels for one row and for two differ in the last bits, enough to flip a ReLU at its kink."""
    spec = InputSpec((784,), classes=2)
    moved = []
    for seed in range(3):
        model = models.build("mlp", {"hidden": [4], "activation": "relu"}).build(spec, seed)
        x = _at_the_kink(model, seed)
        if x is None:
            continue
        y = torch.zeros(2, dtype=torch.long)
        engine = engines.build(name, {})
        two, one = (engine.clipped_sum(model, cross_entropy, (x.repeat(n, 1), y[:n]), Clip(1e-3)).total for n in (2, 1))
        moved.append(float(np.linalg.norm(opened(two) - opened(one))) / 1e-3)

    if not moved:
        pytest.skip("this machine's kernels agree for one row and two")
    assert max(moved) <= 1 + 1e-5


def _at_the_kink(model, seed):
    """An input on which one hidden unit is on in a batch of two and off in a batch of one, or the other way."""
    layer = model.linear1
    weight, bias = layer.weight[0].detach().double(), layer.bias[0].detach().double()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(300):
        x = torch.randn(784, generator=generator).double()
        x = (x - ((weight @ x + bias) / (weight @ weight)) * weight).float()
        with torch.no_grad():
            if bool((layer(x.repeat(2, 1))[0, 0] > 0) != (layer(x[None])[0, 0] > 0)):
                return x
    return None


def test_a_parameter_of_no_dimension(engine):
    """
    A single number that is trained, such as a temperature: the oracle's sum, or refused.
    """

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature, self.head = nn.Parameter(torch.tensor(0.7)), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(x) * self.temperature

    model, batch = Scaled(), synthetic(SPECS["mlp"], 5)
    try:
        result = clipped_sum(engine, model, batch)
    except PrivacyError:
        return
    assert np.allclose(result, clipped_sum(engines.example("oracle"), model, batch), rtol=1e-5, atol=1e-6)
