"""The code that a coordinator hands to sites: a thin bundle that imports the `sordino` installed there.

It carries the digest of the coordinator's `sordino`, and refuses to start beside any other code. So a signature over
the bundle is one over all of the package. Bundles of the same code are equal byte for byte on every machine: nothing
in them is compressed, dated or taken from the system.
"""

from __future__ import annotations

import hashlib
import io
import zipfile

from sordino.core import code

APP = "sordino/federation"
"""Publisher and name, by which Flower stores the bundle."""

KEYS = ("plan",)
"""What a run may add: the digest of its plan. Signatures do not cover it; a site's own rules do."""

_PYPROJECT = """\
[project]
name = "federation"
version = "1.0.0"
description = "A Sordino federation: the code is the package installed at the site."
license = "Apache-2.0"
dependencies = ["flwr>=1.42,<1.43", "sordino"]

[tool.flwr.app]
publisher = "sordino"

[tool.flwr.app.components]
serverapp = "sordino_federation:server"
clientapp = "sordino_federation:client"

[tool.flwr.app.config]
code = "{code}"
"""

_MODULE = '''\
"""The apps of a Sordino federation, from the package that is installed here."""

from sordino.core import code

CODE = "{code}"
if code.digest() != CODE:
    raise RuntimeError(f"the coordinator's sordino is {{CODE[:16]}}, here is {{code.digest()[:16]}}: install the same")

from sordino.experiment.flower_app import client, server  # noqa: E402 - only beside the code that was signed
'''


def fab() -> bytes:
    """The bundle of the code that runs here.

    >>> fab() == fab()
    True
    """
    mine = code.digest()
    config = _PYPROJECT.format(code=mine) + "".join(f'{key} = ""\n' for key in KEYS)
    return packed({"pyproject.toml": config, "sordino_federation.py": _MODULE.format(code=mine)})


def packed(files: dict[str, str]) -> bytes:
    """A bundle of some files, as Flower reads it: a zip with the list of its files and their hashes.

    Args:
        files: Contents by name. `pyproject.toml` is among them.
    """
    contents = {name: text.encode() for name, text in sorted(files.items())}
    lines = [f"{name},{hashlib.sha256(data).hexdigest()},{len(data) * 8}" for name, data in contents.items()]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [*contents.items(), (".info/CONTENT", "\n".join(lines).encode())]:
            entry = zipfile.ZipInfo(name)  # of 1 January 1980
            entry.create_system, entry.external_attr = 3, 0o600 << 16
            archive.writestr(entry, data)
    return target.getvalue()


def digest(bundle: bytes) -> str:
    """The name of a bundle: SHA-256, in hexadecimal."""
    return hashlib.sha256(bundle).hexdigest()
