"""Plain SGD equals torch's own, and a client that diverges says so with NaN, not with an error."""

import numpy as np
import pytest
import torch

from sordino.core.seeds import stream
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.objectives import objectives
from sordino.local.trainers.plans import PlainSteps
from sordino.local.trainers.sgd import batches, train_plain

torch.set_num_threads(1)

SPEC = InputSpec((5,), classes=3)
PLAIN = objectives.example("plain")


def silo(n=17):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 5)), rng.integers(3, size=n), None


def model_and_layout():
    model = models.example("mlp").build(SPEC, seed=1)
    return model, Layout.of(model)


def test_full_batches_equal_torchs_sgd():
    """
    Ten steps with momentum on all records.
    """
    (model, layout), (x, y, user) = model_and_layout(), silo()
    start = layout.flatten(model)

    change = train_plain(
        model, layout, (x, y, user), start, PlainSteps(lr=0.3, steps=10, momentum=0.9), stream(1, "shuffle"), PLAIN
    )

    reference, _ = model_and_layout()
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.3, momentum=0.9)
    for _ in range(10):
        optimiser.zero_grad()
        cross_entropy(reference(torch.from_numpy(x).float()), torch.from_numpy(y)).mean().backward()
        optimiser.step()
    assert np.allclose(layout.flatten(reference), start + change, atol=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("plan", "sizes"),
    [
        (PlainSteps(lr=1, epochs=2), [17, 17]),
        (PlainSteps(lr=1, epochs=2, batch_size=8), [8, 8, 1, 8, 8, 1]),
        (PlainSteps(lr=1, steps=5, batch_size=8), [8, 8, 1, 8, 8]),
        (PlainSteps(lr=1, steps=2, batch_size=100), [17, 17]),
    ],
)
def test_each_pass_sees_every_record_once(plan, sizes):
    """
    Epochs are passes; steps cut the last pass short.
    """
    made = list(batches(17, plan, stream(1, "shuffle")))

    assert [len(rows) for rows in made] == sizes
    first = np.concatenate(made[: -(-17 // sizes[0])])
    assert sorted(first) == list(range(17))


def test_the_same_stream_gives_the_same_change():
    """
    Shuffles are the only randomness, and they are named.
    """
    model, layout = model_and_layout()
    start, plan = layout.flatten(model), PlainSteps(lr=0.1, epochs=3, batch_size=4)

    one, same, other = (
        train_plain(model, layout, silo(), start, plan, stream(1, "shuffle", i), PLAIN) for i in (0, 0, 1)
    )

    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_gradients_left_on_the_model_do_not_count():
    """
    Whoever trained the module before may have left some.
    """
    model, layout = model_and_layout()
    start, plan = layout.flatten(model), PlainSteps(lr=0.1, steps=2)
    clean = train_plain(model, layout, silo(), start, plan, stream(1, "shuffle"), PLAIN)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)

    again = train_plain(model, layout, silo(), start, plan, stream(1, "shuffle"), PLAIN)

    assert np.array_equal(again, clean)


def test_no_records_no_change():
    """
    An empty client contributes zero.
    """
    model, layout = model_and_layout()

    change = train_plain(
        model, layout, silo(0), layout.flatten(model), PlainSteps(lr=1, epochs=1), stream(1, "shuffle"), PLAIN
    )

    assert not change.any()


def test_divergence_gives_nan():
    """
    Clipping counts it as zero; an error would tell everyone about this client's records.
    """
    (model, layout), (x, y, user) = model_and_layout(), silo()

    change = train_plain(
        model,
        layout,
        (x * np.nan, y, user),
        layout.flatten(model),
        PlainSteps(lr=1, steps=2),
        stream(1, "shuffle"),
        PLAIN,
    )

    assert np.isnan(change).all()


def test_the_regulariser_is_added_to_the_gradient():
    """
    A strong pull keeps the change small.
    """
    model, layout = model_and_layout()
    start, plan = layout.flatten(model), PlainSteps(lr=0.1, steps=50)

    free, held = (
        train_plain(model, layout, silo(), start, plan, stream(1, "s"), objectives.build("fedprox", {"mu": mu}))
        for mu in (0.0, 5.0)
    )

    assert np.linalg.norm(held) < 0.5 * np.linalg.norm(free)
