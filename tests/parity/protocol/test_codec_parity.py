"""The Cython codec, at once and in steps, and its plain twin agree: on good and damaged bytes, on unfitting values."""

import random
from typing import Any

import pytest

from kafkalite._speedups import codec
from kafkalite._speedups.codec.incremental_decoder import IncrementalDecoder
from kafkalite.errors import DecodeError, EncodeError
from kafkalite.protocol.schema import Layout, Message
from tests.oracles import codec as oracle
from tests.oracles.codec import layout_of
from tests.unit.protocol.damage import damaged
from tests.unit.protocol.values import CASES, STORED_CASES, ids, random_message, seed

GOOD_PER_CASE = 5
BAD_PER_MESSAGE = 20
ALL_CASES = CASES + STORED_CASES


def verdict(engine: Any, cls: type[Message], version: int, data: bytes) -> Any:
    """The message, or what is wrong with it and where. A message with NaN equals no other: its text is compared."""
    try:
        message = engine.decode(cls, version, data)
    except DecodeError as error:
        return error.kind, error.detail, error.position, error.field
    text = repr(message)
    return text if "=nan" in text else message


class InSteps:
    """An engine that decodes in random numbers of steps."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def decode(self, cls: type[Message], version: int, data: bytes) -> Message | None:
        decoder: IncrementalDecoder[Any] = IncrementalDecoder(cls, version, data, True, -1)
        while not decoder.advance(self._rng.choice((1, 2, 100))):
            assert decoder.message is None
        return decoder.message


@pytest.mark.parametrize(("cls", "version"), ALL_CASES, ids=ids(ALL_CASES))
def test_decoder_and_twin_agree_on_valid_and_damaged_bytes(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{seed()} {cls.__name__} {version}")
    for _ in range(GOOD_PER_CASE):
        message = random_message(rng, cls, version)
        good = oracle.encode(message, version)
        assert codec.encode(message, version) == good
        for data in (good, *(damaged(rng, good) for _ in range(BAD_PER_MESSAGE))):
            expected = verdict(oracle, cls, version, data)
            assert verdict(codec, cls, version, data) == expected, data.hex()
            assert verdict(InSteps(rng), cls, version, data) == expected, data.hex()


def spoilable(cls: type[Message], version: int) -> bool:
    layout = layout_of(cls, version)
    return layout is not None and bool(layout.fields or layout.tagged)


def spoil(rng: random.Random, layout: Layout, message: Any) -> None:
    """Put a value that does not fit somewhere into the message."""
    slots = [*layout.fields, *layout.tagged]
    slot = rng.choice(slots)
    inside = getattr(message, slot.name)
    if slot.struct is not None and inside and rng.random() < 0.7:
        spoil(rng, slot.struct, rng.choice(inside) if isinstance(inside, list) else inside)
        return
    wrong = [
        None,
        object(),
        "\ud800",
        "x" * 40000,
        2**63,
        -(2**63) - 1,
        1.5,
        b"short",
        [None],
        [object()],
        True,
        message,
    ]
    setattr(message, slot.name, rng.choice([*wrong, message]))


def written(engine: Any, message: Any, version: int) -> Any:
    try:
        return engine.encode(message, version)
    except EncodeError as error:
        return error.field, error.detail


WITH_FIELDS = [(cls, version) for cls, version in ALL_CASES if spoilable(cls, version)]


@pytest.mark.parametrize(("cls", "version"), WITH_FIELDS)
def test_encoder_and_twin_agree_on_invalid_values(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{seed()} {cls.__name__} {version}")
    layout = layout_of(cls, version)
    assert layout is not None
    for _ in range(20):
        message = random_message(rng, cls, version)
        spoil(rng, layout, message)
        assert written(codec, message, version) == written(oracle, message, version)
