"""The 1,797 small digits that come with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.core.errors import ConfigError
from sordino.data.datasets import datasets
from sordino.data.examples import Examples
from sordino.data.fetch import Archive


@datasets.register("digits")
@dataclass(frozen=True)
class Digits:
    """Handwritten digits of 8 x 8 pixels: 1,797 images from scikit-learn, no natural clients.

    Pixels lie in [0, 1]: the file's 0 to 16, divided by 16.
    """

    example: ClassVar[dict[str, Any]] = {}
    source: ClassVar[str] = "Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI; scikit-learn"
    licence: ClassVar[str] = "CC BY 4.0"
    fetch: ClassVar[Archive | None] = None

    def load(self) -> Examples:
        """Images of shape (1797, 1, 8, 8)."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            remedy = "pip install 'sordino[digits]'"
            raise ConfigError.about("dataset.digits", "needs scikit-learn", remedy) from None
        images, labels = load_digits(return_X_y=True)
        return Examples(
            x=images.reshape(-1, 1, 8, 8).astype(np.float32) / np.float32(16),
            y=labels.astype(np.int64),
            classes=10,
            public=True,
            source=self.source,
            licence=self.licence,
        ).validated("dataset.digits")
