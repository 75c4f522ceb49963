"""Laws of noise. A mechanism is the only door from a private sum to a public vector (`privacy.doors.Door`).

`gaussian` and `laplace` are continuous and are rounded to the kernel's grid. `skellam` and `discrete_gaussian` are laws
of whole numbers: for secure summation, drawn in shares (`privacy.shares`); at a door, in steps as fine as the grid.
"""

from __future__ import annotations

from sordino.core import registry
from sordino.privacy.doors import Mechanism

mechanisms: registry.Registry[Mechanism] = registry.Registry("mechanism")

registry.load(__name__, __path__)
