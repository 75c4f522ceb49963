"""Models by name, as plain descriptions: none of these files imports torch before a model is built."""

from sordino.core.registry import load
from sordino.local.models._registry import InputSpec, Model, TextInput, active_names, models, parameter_count

__all__ = ["InputSpec", "Model", "TextInput", "active_names", "models", "parameter_count"]

load(__name__, __path__)
