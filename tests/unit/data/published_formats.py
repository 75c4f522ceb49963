"""Small files in the formats the real data sets are published in."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    """One IDX file of unsigned bytes."""
    lengths = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes()


def mnist_files(train: int = 12, test: int = 5) -> dict[str, bytes]:
    """The four files of MNIST; image i is filled with i and labelled i modulo 10."""
    files = {}
    for prefix, n in (("train", train), ("t10k", test)):
        numbers = np.arange(n)
        files[f"{prefix}-images-idx3-ubyte"] = idx(np.broadcast_to(numbers[:, None, None], (n, 28, 28)))
        files[f"{prefix}-labels-idx1-ubyte"] = idx(numbers % 10)
    return files


def write(folder: Path, files: dict[str, bytes], *, zipped: bool = False) -> Path:
    """Files in a folder, each gzipped if asked for."""
    for name, content in files.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if zipped else content)
    return folder


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    """Files in a zip or wheel."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tar(files: dict[str, bytes], compression: str = "gz") -> bytes:
    """Files in a compressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def deb(files: dict[str, bytes]) -> bytes:
    """Files in a Debian package: an ar container with a member of odd length before the data."""
    result = b"!<arch>\n"
    members = {"debian-binary": b"2.0", "data.tar.xz": tar(files, "xz")}
    for name, content in members.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
        result += header.encode() + content + b"\n" * (len(content) % 2)
    return result


def cifar_binary(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch of CIFAR-10's binary version."""
    return b"".join(bytes([label]) + row.tobytes() for label, row in zip(labels, pixels, strict=True))


def cifar_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch as Python 3 pickles it with Python 2's protocol."""
    return pickle.dumps({"batch_label": "x", "labels": labels, "data": pixels, "filenames": []}, protocol=2)


def cifar_python2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch as Python 2 wrote it: the pixels are one byte string, spelt out opcode by opcode."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    raw = pixels.tobytes()
    dtype = b"cnumpy\ndtype\n(" + short(b"u1") + number(0) + number(1) + b"tR("
    dtype += number(3) + short(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + number(0) + b"\x85" + short(b"b") + b"tR("
    shape = number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86"
    array += number(1) + shape + dtype + b"\x89" + b"T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    names = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + names + b"u."


def leaf(users: dict[str, tuple[list, list]]) -> bytes:
    """One of LEAF's JSON files."""
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    numbers = [len(y) for _, y in users.values()]
    return json.dumps({"users": list(users), "num_samples": numbers, "user_data": data}).encode()
