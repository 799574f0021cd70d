"""Tests client quotas at a broker that is alone: stored in Kafka's nodes, validated, described by filters."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Tree
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafkalite.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkalite.server.running.running_broker import RunningBroker
from tests.kit.server import Client, running

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = range(3)
PRODUCER, CONSUMER, CONNECTIONS = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
INVALID = KafkaErrorCode.INVALID_REQUEST

Names = dict[str, str | None]
Entry = AlterClientQuotasRequest.EntryData


def entry(names: Names | list[tuple[str, str | None]], **quotas: float | None) -> Entry:
    pairs = names.items() if isinstance(names, dict) else names
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


async def alter(client: Client, *entries: Entry, validate_only: bool = False, version: int = 1) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = await client.call(request, version)
    assert [each.entity for each in response.entries] == [
        [type(name)(entity_type=name.entity_type, entity_name=name.entity_name) for name in found.entity]
        for found in response.entries
    ]
    return [each.error_code for each in response.entries]


async def described(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """The quotas by the names of their entity, such as ("alice", None)."""
    data = DescribeClientQuotasRequest.ComponentData
    asked = [data(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
    response = await client.call(DescribeClientQuotasRequest(components=asked, strict=strict))
    if response.error_code:
        assert response.entries is None
        return response.error_code
    return {
        tuple((each.entity_type, each.entity_name) for each in found.entity): {
            each.key: each.value for each in found.values
        }
        for found in response.entries
    }


def tree_of(broker: RunningBroker) -> Tree:
    service = broker._resources.coordination
    assert service is not None
    return service.tree


def stored(broker: RunningBroker) -> dict[str, bytes]:
    """The nodes of quotas, by path."""
    roots = (znodes.USER_CONFIGS, "/config/clients", "/config/ips")
    return {path: node.data for path, node in tree_of(broker).walk() if path.startswith(tuple(f"{r}/" for r in roots))}


async def fill(client: Client) -> None:
    limits = {PRODUCER: 1024.0, "request_percentage": 12.5}
    of_users: list[Names] = [{USER: "alice"}, {USER: None}, {USER: "alice", CLIENT: "app"}, {USER: None, CLIENT: None}]
    entries = [*of_users, {CLIENT: "app"}, {CLIENT: None}]
    assert await alter(client, *(entry(names, **limits) for names in entries)) == [0] * 6
    assert await alter(client, entry({IP: "10.0.0.1"}, **{CONNECTIONS: 5.0}), entry({IP: None}, **{CONNECTIONS: 9.0}))


async def test_quotas_are_stored_in_the_nodes_of_kafka_and_survive_a_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as client:
        await fill(client)
        assert await alter(client, entry({USER: "a b/~*ü"}, **{CONSUMER: 1e7, "request_percentage": 1e8})) == [0]
        found = stored(client.broker)
        limits = b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"12.5"}}'
        assert found["/config/users/alice"] == found["/config/users/<default>/clients/<default>"] == limits
        assert found["/config/users/alice/clients"] == b""
        assert found["/config/clients/<default>"] == found["/config/users/alice/clients/app"] == limits
        assert found["/config/ips/10.0.0.1"] == b'{"version":1,"config":{"connection_creation_rate":"5"}}'
        large = b'{"version":1,"config":{"consumer_byte_rate":"10000000","request_percentage":"1.0E8"}}'
        assert found["/config/users/a%20b%2F%7E%2A%C3%BC"] == large
        before = await described(client)
    async with running(str(tmp_path)) as client:
        assert stored(client.broker) == found
        assert await described(client) == before
        assert before[(USER, "a b/~*ü"),] == {CONSUMER: 1e7, "request_percentage": 1e8}


ALICE, APP, BOTH = (USER, "alice"), (CLIENT, "app"), ((USER, "alice"), (CLIENT, "app"))
ANY_USER, ANY_APP = (USER, None), (CLIENT, None)
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool, set[Any]]] = [
    ([(USER, EXACT, "alice")], False, {(ALICE,), BOTH}),
    ([(USER, EXACT, "alice")], True, {(ALICE,)}),
    ([(USER, DEFAULT, None)], True, {(ANY_USER,)}),
    ([(USER, SPECIFIED, None)], True, {(ALICE,), (ANY_USER,)}),
    ([(CLIENT, EXACT, "app")], False, {(APP,), BOTH}),
    ([(CLIENT, SPECIFIED, None)], True, {(APP,), (ANY_APP,)}),
    ([(CLIENT, DEFAULT, None)], False, {(ANY_APP,), (ANY_USER, ANY_APP)}),
    ([(USER, EXACT, "alice"), (CLIENT, EXACT, "app")], True, {BOTH}),
    ([(USER, SPECIFIED, None), (CLIENT, SPECIFIED, None)], False, {BOTH, (ANY_USER, ANY_APP)}),
    ([(IP, EXACT, "10.0.0.1")], False, {((IP, "10.0.0.1"),)}),
    ([(IP, SPECIFIED, None)], True, {((IP, "10.0.0.1"),), ((IP, None),)}),
    ([(USER, EXACT, "bob")], False, set()),
    ([], True, set()),
]


@pytest.mark.parametrize(("components", "strict", "expected"), FILTERS)
async def test_filters_select_entities(client: Client, components: Any, strict: bool, expected: Any) -> None:
    await fill(client)
    assert (await described(client, *components, strict=strict)).keys() == expected


async def test_invalid_filters_are_rejected(client: Client) -> None:
    assert await described(client, (USER, EXACT, "a"), (USER, EXACT, "b")) == INVALID
    assert await described(client, (USER, EXACT, "a"), (IP, SPECIFIED, None)) == INVALID
    assert await described(client, (USER, EXACT, None)) == INVALID
    assert await described(client, (USER, DEFAULT, "a")) == INVALID
    assert await described(client, (USER, 3, None)) == INVALID
    assert await described(client, ("team", SPECIFIED, None)) == KafkaErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "wrong",
    [
        entry({}, **{PRODUCER: 1.0}),
        entry({"team": "a"}, **{PRODUCER: 1.0}),
        entry({USER: ""}, **{PRODUCER: 1.0}),
        entry({USER: "."}, **{PRODUCER: 1.0}),
        entry({USER: "<default>"}, **{PRODUCER: 1.0}),
        entry({USER: "u" * 1001}, **{PRODUCER: 1.0}),
        entry([(USER, "a"), (USER, "b")], **{PRODUCER: 1.0}),
        entry({USER: "a", IP: "10.0.0.1"}, **{CONNECTIONS: 1.0}),
        entry({IP: "no address"}, **{CONNECTIONS: 1.0}),
        entry({IP: "10.0.0.1"}, **{PRODUCER: 1.0}),
        entry({USER: "a"}, **{CONNECTIONS: 1.0}),
        entry({USER: "a"}, **{PRODUCER: 1.5}),
        entry({USER: "a"}, **{PRODUCER: 1e300}),
        entry({USER: "a"}, request_percentage=float("nan")),
        entry({USER: "a"}, unknown_rate=1.0),
    ],
)
async def test_invalid_quotas_are_rejected_and_others_are_stored(client: Client, wrong: Entry) -> None:
    valid = entry({USER: "valid"}, **{PRODUCER: 2.0})
    assert await alter(client, wrong, valid) == [INVALID, 0]
    assert await described(client) == {((USER, "valid"),): {PRODUCER: 2.0}}


async def test_an_entity_that_occurs_twice_is_not_changed(client: Client) -> None:
    twice = entry({USER: "a"}, **{PRODUCER: 2.0})
    assert await alter(client, twice, entry({USER: "b"}, **{PRODUCER: 2.0}), twice) == [INVALID, 0, INVALID]
    repeated = Entry(entity=twice.entity, ops=twice.ops * 2)
    assert await alter(client, repeated) == [INVALID]
    assert (await described(client)).keys() == {((USER, "b"),)}


async def test_validation_alone_stores_nothing(client: Client) -> None:
    assert await alter(client, entry({USER: "a"}, **{PRODUCER: 2.0}), validate_only=True, version=0) == [0]
    assert stored(client.broker) == {}


async def test_changed_quotas_are_in_the_audit_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkalite.authorizer")
    both = entry({USER: "a", CLIENT: None}, **{PRODUCER: 2.0, CONSUMER: None})
    assert await alter(client, both, entry({USER: "b"}, **{PRODUCER: -1.0})) == [0, INVALID]
    assert await alter(client, entry({USER: "c"}, **{PRODUCER: 2.0}), validate_only=True) == [0]
    (record,) = caplog.records
    host = client.broker.address.rpartition(":")[0]
    text = f"of user a, client-id <default>: {PRODUCER}=2, {CONSUMER} removed"
    assert record.getMessage() == f"Principal = User:ANONYMOUS from host = {host} has changed quota {text}"
    names = {"principal": "User:ANONYMOUS", "host": host, "change": "changed"}
    assert record.fields == {**names, "quota": text}  # type: ignore[attr-defined]


async def test_removed_quotas_leave_no_nodes(client: Client) -> None:
    both: Names = {USER: "alice", CLIENT: "app"}
    entries = entry({USER: "alice"}, **{PRODUCER: 2.0, CONSUMER: 3.0}), entry(both, **{PRODUCER: 2.0})
    assert await alter(client, *entries) == [0, 0]
    assert await alter(client, entry({USER: "alice"}, **{PRODUCER: None, CONSUMER: None})) == [0]
    assert stored(client.broker)["/config/users/alice"] == b'{"version":1,"config":{}}', "it has a child"
    assert await alter(client, entry({USER: "alice"}, **{PRODUCER: None})) == [0], "what is missing is not removed"
    assert await alter(client, entry(both, **{PRODUCER: None})) == [0]
    assert stored(client.broker) == {}


async def test_credentials_of_a_user_are_kept(client: Client) -> None:
    session, path = client.broker.store.session, "/config/users/alice"
    session.create(path, znodes.encode_configs({"SCRAM-SHA-256": "salt=x", PRODUCER: "7"}), lambda outcome: None)
    assert await alter(client, entry({USER: "alice"}, **{PRODUCER: None, CONSUMER: 3.0})) == [0]
    assert znodes.decode_configs(path, stored(client.broker)[path]) == {"SCRAM-SHA-256": "salt=x", CONSUMER: "3"}
    assert await described(client) == {((USER, "alice"),): {CONSUMER: 3.0}}


async def test_a_node_that_cannot_be_read_is_left_out_and_not_overwritten(client: Client) -> None:
    session = client.broker.store.session
    session.create("/config/users/odd", b"[]", lambda outcome: None)
    session.create(
        "/config/clients/odd", znodes.encode_configs({PRODUCER: "many", CONSUMER: "1"}), lambda outcome: None
    )
    assert await alter(client, entry({USER: "alice"}, **{PRODUCER: 2.0})) == [0]
    assert await described(client) == {((USER, "alice"),): {PRODUCER: 2.0}, ((CLIENT, "odd"),): {CONSUMER: 1.0}}
    assert await alter(client, entry({USER: "odd"}, **{PRODUCER: 2.0})) == [KafkaErrorCode.INVALID_CONFIG]
    assert stored(client.broker)["/config/users/odd"] == b"[]"
