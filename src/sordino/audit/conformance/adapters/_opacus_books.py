"""Opacus's accounting: its accountants, and an engine over the rounds of federated training."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sordino.audit.conformance.protocol import Declared, Silent

CHECKPOINT = "PrivacyEngine.save_checkpoint: «Saves the state_dict of module, optimizer, and accountant at path»"
ESTIMATE = "accountants/analysis/gdp.py: «Applies the Dual and Central Limit Theorem (CLT) to estimate privacy budget»"


@dataclass(frozen=True)
class Accountant(Silent):
    """One of its accountants."""

    name: str
    kind: str

    def claim(self) -> Declared:
        return Declared(
            by=f"Opacus {version('opacus')}, accountant {self.kind}",
            noise_multiplier=None,
            clip=1.0,
            cohort=3,
            discloses={
                "C20:a second run knows the first": CHECKPOINT,
                **({"C12:Poisson-sampled releases": ESTIMATE} if self.kind == "gdp" else {}),
            },
        )

    def price(self, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
        made = create_accountant(self.kind)
        made.history = [(noise_multiplier, rate, steps)]
        return float(made.get_epsilon(delta))

    def restored(self, noise_multiplier: float, before: int, after: int, delta: float) -> float:
        first = create_accountant(self.kind)
        for _ in range(before):
            first.step(noise_multiplier=noise_multiplier, sample_rate=1.0)
        second = create_accountant(self.kind)
        if before:
            second.load_state_dict(first.state_dict())
        for _ in range(after):
            second.step(noise_multiplier=noise_multiplier, sample_rate=1.0)
        return float(second.get_epsilon(delta))

    def spent_by(self, folder: Path, noise_multiplier: float, releases: int, delta: float) -> float:
        return self.restored(noise_multiplier, 0, releases, delta)


@dataclass(frozen=True)
class Federated(Silent):
    """One client's side of federated training: private steps, round after round.

    Args:
        name: In the table.
        anew: Each round makes a `PrivacyEngine` of its own, as `examples/opacus` of Flower does in `fit`.
    """

    name: str
    anew: bool = False

    def claim(self) -> Declared:
        return Declared(by=f"Opacus {version('opacus')}, {self.name}", noise_multiplier=None, clip=1.0, cohort=3)

    def over_rounds(self, noise_multiplier: float, rate: float, rounds: int, steps: int, delta: float) -> float:
        data = TensorDataset(torch.zeros(round(4 / rate), 2), torch.zeros(round(4 / rate)))
        engine = PrivacyEngine()
        for number in range(rounds):
            engine = PrivacyEngine() if self.anew and number else engine
            module = nn.Linear(2, 1)
            private, optimizer, drawn = engine.make_private(
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
                data_loader=DataLoader(data, batch_size=4),
                noise_multiplier=noise_multiplier,
                max_grad_norm=1.0,
            )
            taken = 0
            while taken < steps:
                for x, _ in itertools.islice(drawn, steps - taken):
                    optimizer.zero_grad()
                    private(x).sum().backward()
                    optimizer.step()
                    taken += 1
        return float(engine.get_epsilon(delta))
