"""Vectors in Flower's messages: short ones among the fields, since each part of a message is a request."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sordino.federation.post import REFUSED, Letter

pytest.importorskip("flwr")


def sent(letter):
    from flwr.app import MessageType
    from flwr.supercore.task_identity import TaskIdentity

    from sordino.federation.engines.flower import message_of

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    return message_of(letter, MessageType.QUERY, 7, 60.0)


def read(fields):
    from flwr.app import ConfigRecord, RecordDict

    from sordino.federation.engines.flower import letter_of

    content = RecordDict({"fields": ConfigRecord({"letter": "train", "n": 1} | fields)})
    return letter_of(SimpleNamespace(has_error=lambda: False, content=content))


@pytest.mark.parametrize("kind", ["float32", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize("size", [0, 3, 2**20 + 1])
def test_a_vector_arrives_as_it_was_sent(kind, size):
    from sordino.federation.engines.flower import letter_of

    letter = Letter("train", {"n": 1, "b": b"\x00"}, np.arange(size).astype(kind))
    got = letter_of(sent(letter))
    assert (got.action, got.fields) == ("train", letter.fields)
    assert got.vector.dtype == letter.vector.dtype
    assert np.array_equal(got.vector, letter.vector)
    assert got.vector.flags.writeable


def test_a_short_vector_is_no_further_part_of_the_message():
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    letter = Letter("train", {"n": 1}, np.ones(6_061, np.float32))
    assert len(get_all_nested_objects(sent(letter))) == 3
    assert len(get_all_nested_objects(sent(Letter("train", {"n": 1}, np.ones(2**20, np.float32))))) > 3


STRANGE = {
    "no type": {"vector": b"1234", "vector.shape": [1]},
    "no shape": {"vector": b"1234", "vector.type": "<f4"},
    "no bytes": {"vector": "1234", "vector.type": "<f4", "vector.shape": [1]},
    "objects": {"vector": b"12345678", "vector.type": "|O", "vector.shape": [1]},
    "a text": {"vector": b"1234", "vector.type": "<U1", "vector.shape": [1]},
    "fields": {"vector": b"12345678", "vector.type": "f4,f4", "vector.shape": [1]},
    "another shape": {"vector": b"1234", "vector.type": "<f4", "vector.shape": [10**13]},
    "half a number": {"vector": b"123", "vector.type": "<f4", "vector.shape": [1]},
}


@pytest.mark.parametrize("fields", STRANGE.values(), ids=STRANGE)
def test_strange_fields_are_no_letter(fields):
    assert read(fields).action == REFUSED


def test_right_fields_are_one():
    assert read({"vector": b"\0\0\x80?", "vector.type": "<f4", "vector.shape": [1]}).vector.tolist() == [1.0]
