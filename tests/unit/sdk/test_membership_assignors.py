"""Assignors of classic groups, and the bytes of their subscriptions."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest
from kafkalite_sdk.membership import assignors
from kafkalite_sdk.membership.assignors import (
    BuiltinAssignor,
    MemberSubscription,
    assignors_named,
    valid_owners,
    without_transfers,
)
from kafkalite_sdk.membership.consumer_protocol import decode_subscription, encode_subscription
from kafkalite_sdk.membership.user_data import generation_in, previous_assignment, previous_assignment_data

from tests.unit.sdk.membership_rig import partitions

# What StickyAssignor.java writes: topics with their partitions, then the generation.
STICKY_DATA = bytes.fromhex("00000001 0001 61 00000002 00000000 00000001 00000005")


def subscription(*owned: str, generation: int = 1, topics: tuple[str, ...] = ("a", "b")) -> MemberSubscription:
    return MemberSubscription(frozenset(topics), partitions(*owned), generation)


def test_user_data_of_sticky_has_the_bytes_of_java() -> None:
    assert previous_assignment_data(partitions("a0", "a1"), 5) == STICKY_DATA
    assert previous_assignment(STICKY_DATA) == (partitions("a0", "a1"), 5)
    assert previous_assignment(STICKY_DATA[:-4]) == (partitions("a0", "a1"), -1), "clients before Kafka 2.3"


@pytest.mark.parametrize("data", [b"", b"\x00", STICKY_DATA[:-6], STICKY_DATA + b"\x00"])
def test_malformed_user_data_has_no_partitions(data: bytes) -> None:
    assert previous_assignment(data) == (frozenset(), -1)


def test_generation_of_cooperative_members_is_in_user_data_before_version_2() -> None:
    assert generation_in(b"\x00\x00\x00\x07") == 7
    assert generation_in(b"\x00") == -1
    written = encode_subscription(subscription("a0", generation=-1)._replace(user_data=b"\x00\x00\x00\x07"))
    assert decode_subscription("cooperative-sticky", written, None).generation == 7


def test_sticky_reads_owned_partitions_from_user_data() -> None:
    written = encode_subscription(subscription(generation=9)._replace(user_data=STICKY_DATA))
    read = decode_subscription("sticky", written, "i")
    assert (read.owned, read.generation, read.instance_id) == (partitions("a0", "a1"), 5, "i")


def test_of_several_claims_the_newest_generation_is_valid() -> None:
    members = {
        "old": subscription("a0", "b0", generation=1),
        "new": subscription("a0", generation=2),
        "x": subscription("a1", generation=2),
        "y": subscription("a1", generation=2),
    }
    assert valid_owners(members) == {
        "old": partitions("b0"),
        "new": partitions("a0"),
        "x": frozenset(),
        "y": frozenset(),
    }


def test_cooperative_leader_withholds_partitions_until_their_owner_releases_them() -> None:
    members = {"x": subscription("a0", "a1"), "y": subscription(), "stale": subscription("a0", generation=0)}
    assigned = {"x": partitions("a0"), "y": partitions("a1", "b0"), "stale": frozenset[object]()}
    kept = without_transfers(members, assigned)  # type: ignore[arg-type]
    assert kept == {"x": partitions("a0"), "y": partitions("b0"), "stale": frozenset()}


def test_claims_of_the_same_generation_are_withheld_from_all() -> None:
    members = {"x": subscription("a0"), "y": subscription("a0")}
    assert without_transfers(members, {"x": partitions("a0"), "y": frozenset()})["x"] == frozenset()


def test_sticky_keeps_partitions_and_range_does_not() -> None:
    members = {"x": subscription("a1", topics=("a",)), "y": subscription("a0", topics=("a",))}
    sticky, ranges = (each.assign(members, {"a": 2}) for each in assignors_named(["sticky", "range"]))
    assert sticky == {"x": partitions("a1"), "y": partitions("a0")}
    assert ranges == {"x": partitions("a0"), "y": partitions("a1")}


def test_assignor_of_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoints(
        [EntryPoint("mine", f"{__name__}:Mine", assignors.PLUGINS), EntryPoint("made", f"{__name__}:MADE", "other")]
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: offered.select(group=group))
    (mine,) = assignors_named(["mine"])
    assert mine.name == "mine"
    with pytest.raises(ValueError, match=r"'guess' is unknown; known: cooperative-sticky, mine, range"):
        assignors_named(["guess"])


class Mine(BuiltinAssignor):
    def __init__(self) -> None:
        super().__init__("mine", "range")
