"""Random messages for the tests of the codec, leaning towards the edges of every type."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from kafkalite.protocol.schema import Layout, Message, Slot, Wire
from kafkalite.protocol.stored import group_records, transaction_records
from kafkalite.protocol.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.kit.message_versions import EXTENSIONS_FROM, REQUESTS, RESPONSES
from tests.kit.seeds import chosen_seed
from tests.oracles.codec import layout_of

INTEGERS = {"int8": (8, True), "int16": (16, True), "uint16": (16, False), "int32": (32, True), "uint32": (32, False)}
INTEGERS["int64"] = (64, True)
TEXTS = ("", "a", "orders", "Zürich ✓ 𝄞", "x" * 126, "x" * 127, "é" * 64, "y" * 300)
SIZES = (0, 1, 126, 127, 128, 300)


def in_all_versions(classes: Iterable[type[Message]]) -> list[tuple[type[Message], int]]:
    """Each class with each of its versions."""
    return [(cls, version) for cls in classes for version in range(cls.versions[0], cls.versions[1] + 1)]


def ids(cases: list[tuple[type[Message], int]]) -> list[str]:
    """Their names as tests."""
    return [f"{cls.__name__}-v{version}" for cls, version in cases]


CASES = in_all_versions([*REQUESTS.values(), *RESPONSES.values()])
# ListOffsets v0, AlterPartition v0 and v1, and all versions of LeaderAndIsr, StopReplica, UpdateMetadata and
# ControlledShutdown: Kafka 4 has removed them.
OF_KAFKA_3_9 = {(2, 0), (56, 0), (56, 1)}
KEYS_OF_KAFKA_3_9 = {4, 5, 6, 7}
KAFKAS_CASES = [
    (cls, version)
    for cls, version in CASES
    if cls.api_key < EXTENSIONS_FROM  # type: ignore[attr-defined]
    and cls.api_key not in KEYS_OF_KAFKA_3_9  # type: ignore[attr-defined]
    and (cls.api_key, version) not in OF_KAFKA_3_9  # type: ignore[attr-defined]
]
STORED_KEYS = [*group_records.RECORDS.keys.values(), *transaction_records.RECORDS.keys.values()]
STORED_CASES = in_all_versions(
    [
        *STORED_KEYS,
        *dict.fromkeys(cls.value_class for cls in STORED_KEYS),
        ConsumerProtocolSubscription,
        ConsumerProtocolAssignment,
    ]
)

Draw = Callable[[random.Random, str], Any]


def seed() -> int:
    """The seed of this run; printed, so that a failing test shows it."""
    chosen = chosen_seed()
    print(f"KAFKALITE_SEED={chosen}")
    return chosen


def scalar(rng: random.Random, kind: str) -> Any:
    """A value of a type that is neither array nor struct."""
    if kind in INTEGERS:
        bits, signed = INTEGERS[kind]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return rng.choice((low, high, 0, 1, rng.randint(low, high)))
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice((0.0, -1.5, 1e300))
    if kind == "string":
        return rng.choice(TEXTS)
    return rng.randbytes(16 if kind == "uuid" else rng.choice(SIZES))


def _element(rng: random.Random, wire: Wire, struct: Layout | None, draw: Draw) -> Any:
    return random_struct(rng, struct, draw) if struct is not None else draw(rng, wire.kind)


def _value(rng: random.Random, slot: Slot, draw: Draw) -> Any:
    if slot.nullable and rng.random() < 0.2:
        return None
    if slot.wire.element is None:
        return _element(rng, slot.wire, slot.struct, draw)
    return [_element(rng, slot.wire.element, slot.struct, draw) for _ in range(rng.choice((0, 1, 1, 2, 3)))]


def random_struct(rng: random.Random, layout: Layout, draw: Draw = scalar) -> Any:
    """Fill one struct. A tagged struct is None or differs from its default, as only those come back the same."""
    values = {slot.name: _value(rng, slot, draw) for slot in layout.fields}
    for slot in layout.tagged:
        if rng.random() < 0.6:
            value = _value(rng, slot, draw)
            is_default = slot.struct is not None and value == slot.struct.cls()
            values[slot.name] = slot.default if is_default else value
    return layout.cls(**values)


def random_message(rng: random.Random, cls: type[Message], version: int, draw: Draw = scalar) -> Any:
    """Fill one message in one version; fields that the version lacks keep their default."""
    layout = layout_of(cls, version)
    assert layout is not None
    return random_struct(rng, layout, draw)
