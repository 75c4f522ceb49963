"""Messages of Flower that carry no letter: whatever their bytes are, nothing but a refusal comes of them."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest

from sordino.federation.post import REFUSED

pytest.importorskip("flwr")


def message(content, **kinds):
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    array = Array(**({"dtype": "float32", "shape": (1,), "stype": "numpy.ndarray"} | kinds), data=content)
    records = {"fields": ConfigRecord({"letter": "train", "n": 1}), "vector": ArrayRecord({"vector": array})}
    return SimpleNamespace(has_error=lambda: False, content=RecordDict(records))


def written(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def huge():
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**13,)})
    return file.getvalue()


def archive():
    file = io.BytesIO()
    np.savez(file, a=np.zeros(2))
    return file.getvalue()


STRANGE = {
    "nothing": b"",
    "a broken archive": b"PK\x03\x04 and more",
    "an archive": archive(),
    "36 TiB": huge(),
    "a pickle": b"\x80\x04N.",
    "a broken head": b"\x93NUMPY\x01\x00\x05\x00((((\n",
    "an object": b"\x93NUMPY\x01\x00\x46\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(69)
    + b"\n",
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_strange_bytes_are_no_letter(content):
    from sordino.federation.engines.flower import letter_of

    assert letter_of(message(content)).action == REFUSED


def test_a_node_that_is_gone_is_said_in_plain_words():
    from flwr.common.constant import ErrorCode

    from sordino.federation.engines.flower import letter_of

    error = SimpleNamespace(code=ErrorCode.NODE_UNAVAILABLE, reason="Node Unavailable - 2 x its expected interval")
    answer = letter_of(SimpleNamespace(has_error=lambda: True, error=error))
    assert answer.action == REFUSED
    assert "its node is gone" in answer.text("why")


def test_a_letter_is_one():
    from sordino.federation.engines.flower import letter_of

    letter = letter_of(message(written(np.ones(3, np.float32))))
    assert (letter.action, letter.fields, letter.vector.tolist()) == ("train", {"n": 1}, [1.0, 1.0, 1.0])
