"""What happens in one round, for each unit and place of noise: one file each.

    record, user  at silo         record_at_silo.py          every DP-SGD step is a release
                                  zeroth_at_silo.py          every step releases a few slopes, never a gradient
    record, user  at sum          record_at_sum.py           one noise on the securely summed gradients
    client        at sum          client_at_sum.py           clip → share of noise → secure sum (shared_sum.py)
    client        at coordinator  client_at_coordinator.py   clip → sum → noise
    client        at silo         client_at_silo.py          clip → noise → sum: local DP
    none                          without_privacy.py         nothing is protected, and every line says so

A setting says which charges a round needs (`lines`), turns a reservation into released numbers (`release`) and
those into the mean that the strategy steps with (`settle`).
"""

from __future__ import annotations

from sordino.core.types import NoiseAt, Unit
from sordino.experiment.settings.client_at_coordinator import ClientAtCoordinator
from sordino.experiment.settings.client_at_silo import ClientAtSilo
from sordino.experiment.settings.client_at_sum import ClientAtSum
from sordino.experiment.settings.record_at_silo import RecordAtSilo
from sordino.experiment.settings.record_at_sum import RecordAtSharedSum, RecordAtSum
from sordino.experiment.settings.setup import Setting, Setup
from sordino.experiment.settings.without_privacy import WithoutPrivacy
from sordino.experiment.settings.zeroth_at_silo import ZerothAtSilo

__all__ = ["Setting", "Setup", "setting_of"]


def setting_of(setup: Setup) -> Setting:
    """The setting that an experiment's privacy table asks for."""
    privacy = setup.plan.experiment.privacy
    if privacy.non_private:
        return WithoutPrivacy(setup)
    shared = setup.plan.experiment.secure_sum is not None
    if privacy.unit is Unit.CLIENT and shared:
        return ClientAtSum(setup, setup.pipeline())
    if privacy.unit is Unit.CLIENT:
        kind = ClientAtSilo if privacy.noise_at is NoiseAt.SILO else ClientAtCoordinator
        return kind(setup, setup.pipeline())
    if privacy.noise_at is NoiseAt.SUM:
        return RecordAtSharedSum(setup) if shared else RecordAtSum(setup)
    zeroth = setup.plan.experiment.local.method == "zeroth_order"
    return ZerothAtSilo(setup) if zeroth else RecordAtSilo(setup)
