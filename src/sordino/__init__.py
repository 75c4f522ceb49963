"""Sordino: differentially private federated learning with a guarantee that is charged before it is claimed."""

__version__ = "0.1.0"
