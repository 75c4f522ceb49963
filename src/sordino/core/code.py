"""Which code this is: a digest over its own source files, so that who approves a plan approves what runs it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def digest() -> str:
    """SHA-256 over the names and contents of every Python file of the package.

    >>> len(digest())
    64
    """
    root = Path(__file__).parent.parent
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
        content = file.read_bytes().replace(b"\r\n", b"\n")  # a checkout on Windows is the same code
        total.update(f"{file.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return total.hexdigest()
