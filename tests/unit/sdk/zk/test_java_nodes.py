"""The nodes that Java's consumers have written: ours are the same texts, and read theirs."""

from __future__ import annotations

import pytest
from kafkalite_sdk.zk.membership.assignors import assign_range
from kafkalite_sdk.zk.membership.subscription import filtered_subscription, static_subscription

from kafkalite.coordination.znodes.consumers import (
    Registration,
    StreamId,
    decode_owner,
    decode_registration,
    encode_owner,
    encode_registration,
    id_path,
    owner_path,
)
from tests.kit.zookeeper_era import golden
from tests.kit.zookeeper_era.java_nodes import CONSUMER, PARTITIONS, STREAMS, SUBSCRIPTIONS, TOPIC, java_nodes

GROUP = "GROUP"
ID = f"{GROUP}_{CONSUMER}"
VERSIONS = pytest.mark.parametrize("version", golden.VERSIONS)


def subscription(name: str) -> Registration:
    pattern, what = SUBSCRIPTIONS[name]
    if pattern == "static":
        return static_subscription({what: STREAMS})
    return filtered_subscription(what, STREAMS, whitelist=pattern == "white")


@VERSIONS
@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_registrations_have_the_same_text(version: str, name: str) -> None:
    ours = encode_registration(subscription(name)._replace(timestamp_ms=0)).decode()
    theirs = java_nodes(version)[name][id_path(GROUP, ID)]
    if name == "escaped" and version == "1.1.1":  # it escapes a pattern twice
        ours = ours.replace("\\\\", "\\\\\\\\")
    assert ours == theirs


@VERSIONS
@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_registrations_are_read(version: str, name: str) -> None:
    path = id_path(GROUP, ID)
    read = decode_registration(path, java_nodes(version)[name][path].encode())
    if name == "escaped" and version == "1.1.1":
        assert read.subscription == {r"a\\.b": STREAMS}
    else:
        assert read == subscription(name)._replace(timestamp_ms=0)


@VERSIONS
@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_owners_are_those_of_our_assignor(version: str, name: str) -> None:
    owners = {path: text for path, text in java_nodes(version)[name].items() if "/owners/" in path}
    if name == "escaped" and version == "1.1.1":  # no topic matches the pattern that is escaped twice
        assert owners == {}
        return
    streams = [StreamId(ID, number) for number in range(STREAMS)]
    assigned = assign_range({TOPIC: streams}, {TOPIC: range(PARTITIONS)})
    expected = {owner_path(GROUP, *each): encode_owner(stream).decode() for each, stream in assigned.items()}
    assert owners == expected
    assert {decode_owner(path, text.encode()) for path, text in owners.items()} == set(streams)
