"""Flower 1.42: its strategies and mods for differential privacy, its accountant, its secure aggregation's masks.

Real strategies and mods, called as `Strategy.start` and a ClientApp call them; only the network is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.serverapp import (
    GaussianPrivacyEvent,
    Grid,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from sordino.audit.conformance.protocol import Declared, Refused, Silent, Target, Tensors
from sordino.core.types import Adjacency
from sordino.privacy import gaussian

METRICS = "DifferentialPrivacyFixedClippingBase, accountant: «Training and evaluation metrics are not included»"
WEIGHTS = "DifferentialPrivacyFixedClippingBase, accountant: «Accounted mode requires … uniform FedAvg aggregation»"
DROPOUTS = (
    "a warning at run time: the number of clients «differs from the number of sampled clients … This could impact the "
    "differential privacy guarantees»"
)
SENSITIVITY = "LocalDpMod, sensitivity: «The sensitivity of the client model», left to the user"


def targets() -> list[Target]:
    """Strategies on both sides, with and without its accountant; its mods; its masks."""
    return [
        Strategy("fixed clipping at the server", DifferentialPrivacyServerSideFixedClipping),
        Strategy("fixed clipping at the server, accounted", DifferentialPrivacyServerSideFixedClipping, accounted=True),
        Strategy("fixed clipping at the client", DifferentialPrivacyClientSideFixedClipping, mod=fixedclipping_mod),
        AdaptiveStrategy("adaptive clipping at the server", DifferentialPrivacyServerSideAdaptiveClipping),
        AdaptiveStrategy(
            "adaptive clipping at the client", DifferentialPrivacyClientSideAdaptiveClipping, mod=adaptiveclipping_mod
        ),
        LocalMod("LocalDpMod, sensitivity = clip", discloses=dict.fromkeys(("C01", "C07", "C11"), SENSITIVITY)),
        LocalMod("LocalDpMod, sensitivity = 2 clip", sensitivity=2.0),
        Masked("SecAgg+"),
        Accountant("RdpAccountant"),
    ]


class _Nodes(Grid):
    """So many nodes that are online. Nothing is sent: the strategy's messages are answered here."""

    def __init__(self, count: int) -> None:
        self._count = count

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self._count + 1)

    def get_nodes(self) -> Iterable[Any]:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


@dataclass(frozen=True)
class Strategy:
    """One of its strategies around FedAvg.

    Args:
        name: In the table.
        kind: Its class.
        mod: What runs at the client.
        accounted: With its accountant attached.
    """

    name: str
    kind: Any
    mod: Any = None
    accounted: bool = False
    clip: float = 1.0
    cohort: int = 10

    def claim(self) -> Declared:
        return Declared(
            by=f"flwr {version('flwr')}, {self.kind.__name__}(FedAvg)",
            noise_multiplier=1.0,
            clip=self.clip,
            cohort=self.cohort,
            adjacency=Adjacency.ADD_REMOVE,
            discloses={
                "C06:train_loss": METRICS,
                "C02": WEIGHTS,
                "C03:half of the cohort answers": DROPOUTS,
                "C03:one answer less, the others agree": DROPOUTS,
            },
        )

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        return self._round(self._made(), model, updates, weights, seed)[0]

    def wire(self, model: Tensors, updates: Sequence[Tensors], seed: int) -> Mapping[str, Any]:
        return self._round(self._made(), model, updates, [1.0] * len(updates), seed)[1]

    def _made(self) -> Any:
        accountant = _accountant(1e-5, self.cohort, None) if self.accounted else None
        return self.kind(self._fedavg(), 1.0, self.clip, self.cohort, accountant=accountant)

    def _fedavg(self) -> FedAvg:
        n = self.cohort
        return FedAvg(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)

    def _round(
        self, strategy: Any, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> tuple[Tensors, Mapping[str, Any]]:
        """One round: what the strategy hands on of these replies."""
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        messages = list(strategy.configure_train(1, _arrays(model), ConfigRecord(), _Nodes(self.cohort)))
        replies = [
            self._reply(message, model, update, weight)
            for message, update, weight in zip(messages, updates, weights, strict=False)
        ]
        if seed is not None:
            _seed(seed)
        arrays, metrics = strategy.aggregate_train(1, replies)
        if arrays is None:
            raise Refused("the round is dropped")
        changed = {name: arrays[name].numpy() - np.asarray(model.get(name, 0)) for name in arrays}
        return changed, {name: value for name, value in (metrics or {}).items() if name != "norm_bit"}

    def _reply(self, message: Message, model: Tensors, update: Tensors, weight: float) -> Message:
        def client(received: Message, _: Any) -> Message:
            lengths = [float(np.sum(np.asarray(value, np.float64) ** 2)) for value in update.values() if _plain(value)]
            content = RecordDict(
                {
                    "arrays": _arrays(_trained(model, update)),
                    # A number that training reports; its examples' loss stands in for it.
                    "metrics": MetricRecord({"num-examples": float(weight), "train_loss": math.sqrt(sum(lengths))}),
                }
            )
            return Message(content, reply_to=received)

        return cast("Message", self.mod(message, None, client) if self.mod else client(message, None))


@dataclass(frozen=True)
class AdaptiveStrategy(Strategy):
    """A strategy whose clip follows the updates. Its defaults, but for more clients: it refuses 10."""

    clip: float = 0.1
    cohort: int = 20

    def with_cohort(self, count: int) -> AdaptiveStrategy:
        return replace(self, cohort=count)

    def _made(self) -> Any:
        return self.kind(self._fedavg(), 1.0, self.cohort)

    def norms(self, model: Tensors, updates: Sequence[Tensors], rounds: int, seed: int) -> list[float]:
        strategy = self._made()
        norms = [float(strategy.clipping_norm)]
        for t in range(rounds):
            self._round(strategy, model, updates, [1.0] * len(updates), seed if t == 0 else None)
            norms.append(float(strategy.clipping_norm))
        return norms


@dataclass(frozen=True)
class LocalMod:
    """Its local mod with clip 1, for one message.

    Args:
        name: In the table.
        sensitivity: What the user says it is. One client's update can be replaced by any other: that is 2.
        epsilon: Of the message.
        delta: With it.
        discloses: As in `Declared`.
    """

    name: str
    sensitivity: float = 1.0
    epsilon: float = 1.0
    delta: float = 1e-5
    discloses: Mapping[str, str] = field(default_factory=dict)

    def claim(self) -> Declared:
        return Declared(
            by=f"flwr {version('flwr')}, LocalDpMod(1.0, {self.sensitivity}, {self.epsilon:g}, {self.delta:g})",
            noise_multiplier=gaussian.sigma_exact(self.epsilon, self.delta) if self.epsilon * self.delta > 0 else None,
            clip=1.0,
            cohort=1,
            adjacency=Adjacency.REPLACE_ONE,
            epsilon=self.epsilon,
            delta=self.delta,
            discloses=self.discloses,
        )

    def with_budget(self, epsilon: float, delta: float) -> LocalMod:
        LocalDpMod(1.0, self.sensitivity, epsilon, delta)  # refuses what it refuses
        return replace(self, epsilon=epsilon, delta=delta)

    def release(
        self, model: Tensors, updates: Sequence[Tensors], weights: Sequence[float], seed: int | None
    ) -> Tensors:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        mod = LocalDpMod(1.0, self.sensitivity, self.epsilon, self.delta)
        sent = Message(RecordDict({"arrays": _arrays(model)}), dst_node_id=1, message_type="train")
        if seed is not None:
            _seed(seed)
        (update,) = updates
        sent_back = _arrays(_trained(model, update))
        content = RecordDict({"arrays": sent_back, "metrics": MetricRecord({"num-examples": weights[0]})})
        reply = mod(sent, cast("Any", None), lambda message, _: Message(content, reply_to=message))
        if reply.has_error():
            raise Refused(reply.error.reason)
        arrays = reply.content.array_records["arrays"]
        return {name: arrays[name].numpy() - np.asarray(model[name]) for name in arrays}


@dataclass(frozen=True)
class Masked(Silent):
    """The masks of its secure aggregation."""

    name: str

    def claim(self) -> Declared:
        return Declared(by=f"flwr {version('flwr')}, SecAgg+ masks", noise_multiplier=None, clip=1.0, cohort=3)

    def mask(self, key: bytes, size: int) -> NDArray[Any]:
        return np.asarray(pseudo_rand_gen(key, 1 << 32, [(size,)])[0])


@dataclass(frozen=True)
class Accountant(Silent):
    """Its accountant, alone and in a strategy."""

    name: str
    clients: ClassVar[int] = 1000

    def claim(self) -> Declared:
        return Declared(by=f"flwr {version('flwr')}, RdpAccountant", noise_multiplier=None, clip=1.0, cohort=3)

    def price(self, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
        method = SamplingMethod.NO_AMPLIFICATION if rate == 1 else SamplingMethod.POISSON
        made = _accountant(delta, self.clients, None, method)
        made.compose(GaussianPrivacyEvent(noise_multiplier, round(rate * self.clients), self.clients), steps)
        return float(made.get_privacy_spent().epsilon)

    def restored(self, noise_multiplier: float, before: int, after: int, delta: float) -> float:
        event = GaussianPrivacyEvent(noise_multiplier, 10, 10)
        first, second = _accountant(delta, 10, None), _accountant(delta, 10, None)
        if before:
            first.compose(event, before)
            second.load_state_dict(first.state_dict())
        second.compose(event, after)
        return float(second.get_privacy_spent().epsilon)

    def spent_by(self, folder: Path, noise_multiplier: float, releases: int, delta: float) -> float:
        strategy, _ = _run(noise_multiplier, delta, None, releases)
        return float(strategy.privacy_spent().epsilon)

    def releases_within(self, noise_multiplier: float, epsilon: float, delta: float, most: int) -> int:
        return _run(noise_multiplier, delta, epsilon, most)[1]


def _run(noise_multiplier: float, delta: float, limit: float | None, most: int) -> tuple[Any, int]:
    """A run of at most so many rounds with its accountant: the strategy after it, and how many there were."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    n = 10
    accountant = _accountant(delta, n, limit)
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)
    strategy = DifferentialPrivacyServerSideFixedClipping(inner, noise_multiplier, 1.0, n, accountant=accountant)
    model = {"w": np.zeros(4, np.float32)}
    around = Strategy("", None)
    for count in range(most):
        try:
            around._round(strategy, model, [{"w": np.full(4, 0.1, np.float32)}] * n, [1.0] * n, 1)  # noqa: SLF001 - of this file
        except PrivacyBudgetExhausted:
            return strategy, count
    return strategy, most


def _accountant(
    delta: float, population: int, limit: float | None, method: Any = SamplingMethod.NO_AMPLIFICATION
) -> RdpAccountant:
    return RdpAccountant(
        PrivacyConfig(
            target_delta=delta,
            population_size=population,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=method,
            max_epsilon=limit,
        )
    )


def _arrays(tensors: Tensors) -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in tensors.items()})


def _trained(model: Tensors, update: Tensors) -> Tensors:
    """What a client sends: parameters, not changes."""
    return {
        name: model[name] + value if name in model and np.shape(value) == np.shape(model[name]) else value
        for name, value in update.items()
    }


def _plain(value: Any) -> bool:
    """Whether numpy knows its type."""
    return isinstance(value, np.ndarray)


def _seed(seed: int) -> None:
    """Flower draws its noise from numpy's global generator."""
    np.random.seed(seed)  # noqa: NPY002, TID251 - to make it repeat
