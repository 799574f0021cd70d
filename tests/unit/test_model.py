"""Shared types and counters."""

import pytest

from kafkalite.metrics import Counter, Registry
from kafkalite.model import ZERO_UUID, Endpoint, TopicPartition, uuid_from_text, uuid_text


def test_uuid_text_matches_kafka() -> None:
    """Uuid.java: METADATA_TOPIC_ID and ZERO_UUID."""
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("2LLcHqlJQxScoaL_Lw0aUQ").hex() == "d8b2dc1ea94943149ca1a2ff2f0d1a51"


@pytest.mark.parametrize(
    "text", ["", "A", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAA+A", "ä" * 22, "A" * 21, "A" * 23]
)
def test_invalid_uuid_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID"):
        uuid_from_text(text)
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_text(b"short")


def test_str_of_model_types() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    assert str(Endpoint("PLAINTEXT", "h", 1)) == "PLAINTEXT://h:1"


def test_a_registry_gives_the_same_object_for_the_same_labels() -> None:
    registry = Registry()
    one = registry.counter("bytes_total", "Bytes.", topic="a")
    one.add(5)
    assert registry.counter("bytes_total", "Bytes.", topic="a") is one
    assert registry.counter("bytes_total", "Bytes.", topic="b") is not one
    registry.gauge("open", "Open.", lambda: 7)
    registry.gauge("set", "Set.").set(2.5)
    with pytest.raises(ValueError, match="bytes_total is a Counter, not a Gauge"):
        registry.gauge("bytes_total", "Bytes.")
    values = {family.name: [member.value for member in family.members.values()] for family in registry.walk()}
    assert values == {"bytes_total": [5, 0], "open": [7], "set": [2.5]}
    assert Counter().value == 0
