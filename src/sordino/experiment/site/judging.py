"""What a silo tells of a model: the plan's figures on its held-out records, with noise that it draws itself.

The same law, event and name as in one process (`released_metrics.py`): so is the price, and so are seeded figures.
"""

from __future__ import annotations

import numpy as np

from sordino.core.errors import PrivacyError
from sordino.core.types import Vector
from sordino.experiment import released_metrics
from sordino.experiment.site.joined import Joined
from sordino.privacy.permits import Reservation


def judged(joined: Joined, model: Vector, charge: Reservation) -> Vector:
    """One noised sum over the silo's held-out records; of a silo that holds out nobody, noise alone.

    Args:
        joined: The run.
        model: Any: what is released is bounded whatever it answers. Shape (d,).
        charge: The silo's own.

    Returns:
        Shape (2,), or (3,) with a loss.

    Raises:
        PrivacyError: The plan releases none.
    """
    asked = joined.setup.experiment.evaluation.release
    if asked is None:
        raise PrivacyError.about("figures", "are not planned", "ask for what was approved", run=joined.run)
    drawn = released_metrics.drawn_by(joined.setup, asked, joined.client, model, charge)
    return np.asarray(drawn, dtype=np.float32)
