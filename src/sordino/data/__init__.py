"""Federated data sets: loaders, partitions, held-out parts, and archives fetched from package registries."""

from sordino.data.datasets import Dataset, datasets
from sordino.data.examples import Examples
from sordino.data.federation import FederatedData, Silo, pooled
from sordino.data.fetch import Archive
from sordino.data.partitions import Partition, partitions
from sordino.data.split import holdout, train_test
from sordino.data.texts import Message, Texts

__all__ = [
    "Archive",
    "Dataset",
    "Examples",
    "FederatedData",
    "Message",
    "Partition",
    "Silo",
    "Texts",
    "datasets",
    "holdout",
    "partitions",
    "pooled",
    "train_test",
]
