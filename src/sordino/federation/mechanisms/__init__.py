"""Laws of noise. A mechanism is the only door from a private sum to a public vector (`privacy.doors.Door`).

The two here are continuous and are rounded to the kernel's grid. A discrete law (for secure summation over
integers) is one more file: same protocol, draws in whole grid steps.
"""

from __future__ import annotations

from sordino.core import registry
from sordino.privacy.doors import Mechanism

mechanisms: registry.Registry[Mechanism] = registry.Registry("mechanism")

registry.load(__name__, __path__)
