"""The questions of `confluent_answers` to the SDK's Admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Committed, NewTopic, Outcomes, Resource, ResourceType

from kafkalite.errors import BrokerResponseError
from kafkalite.model import TopicPartition

KINDS = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}


def error_of(error: Any) -> Any:
    """The code and the message of an error; another exception is not one that a broker has sent."""
    if not isinstance(error, BrokerResponseError):
        raise error
    return int(error.code), error.message


def ended(outcomes: Outcomes[Any, Any], value: Callable[[Any], Any] = bool, key: Callable[[Any], Any] = str) -> Any:
    """The value of each result, or the code and the message of its error."""
    errors = {key(each): error_of(error) for each, error in outcomes.errors.items()}
    return {**{key(each): value(result) for each, result in outcomes.results.items()}, **errors}


def done(_: object) -> bool:
    """confluent-kafka's result of a change without a value is None, of which `bool` is False."""
    return False


async def cluster(admin: Admin) -> Any:
    found = await admin.cluster.describe(authorized_operations=True)
    brokers = [(each.broker_id, each.host, each.port) for each in found.brokers]
    return found.cluster_id, found.controller, brokers, sorted(found.authorized_operations or ())


async def topics(admin: Admin, names: list[str]) -> Any:
    def described(found: Any) -> Any:
        partitions = [(each.partition, each.leader, [*each.replicas], [*each.isr]) for each in found.partitions]
        return found.internal, partitions, sorted(found.authorized_operations)

    return ended(await admin.topics.describe(*names, authorized_operations=True), described)


async def configs(admin: Admin, resources: list[tuple[str, str]]) -> Any:
    def described(found: Any) -> Any:
        return {each.name: (each.value, int(each.source), each.read_only, each.sensitive) for each in found.values()}

    asked = {Resource(KINDS[kind], name): (kind, name) for kind, name in resources}
    return ended(await admin.configs.describe(*asked), described, asked.__getitem__)


async def altered(admin: Admin, changes: Mapping[str, Mapping[str, str | None]]) -> Any:
    wanted = {Resource.topic(topic): configs_of for topic, configs_of in changes.items()}
    return ended(await admin.configs.alter(wanted), done, lambda each: each.name)


async def created(admin: Admin, new: list[tuple[str, int, int, Mapping[str, str]]]) -> Any:
    wanted = [NewTopic(name, count, factor, None, configs_of) for name, count, factor, configs_of in new]
    return ended(await admin.topics.create(*wanted, validate_only=True), done)


async def grown(admin: Admin, counts: Mapping[str, int]) -> Any:
    return ended(await admin.topics.create_partitions(counts, validate_only=True), done)


async def deleted(admin: Admin, names: list[str]) -> Any:
    return ended(await admin.topics.delete(*names), done)


async def offsets(admin: Admin, times: Mapping[tuple[str, int], int]) -> Any:
    wanted = {TopicPartition(*each): time_ms for each, time_ms in times.items()}

    def listed(found: Any) -> Any:
        return found.offset, found.timestamp_ms, None if found.leader_epoch < 0 else found.leader_epoch

    return ended(await admin.partitions.offsets(wanted), listed, tuple)


async def records_deleted(admin: Admin, before: Mapping[tuple[str, int], int]) -> Any:
    wanted = {TopicPartition(*each): offset for each, offset in before.items()}
    return ended(await admin.partitions.delete_records(wanted), int, tuple)


async def groups(admin: Admin) -> Any:
    return [(each.group, each.type, state(each.state)) for each in await admin.groups.list()]


def state(text: str) -> str:
    """A state as confluent-kafka names it: PreparingRebalance is PREPARING_REBALANCING."""
    return {"PreparingRebalance": "PREPARING_REBALANCING", "CompletingRebalance": "COMPLETING_REBALANCING"}.get(
        text, text.upper()
    )


async def group(admin: Admin, name: str) -> Any:
    def described(found: Any) -> Any:
        members = sorted(
            (each.member_id, each.instance_id, each.client_id, each.host, [tuple(one) for one in each.assignment])
            for each in found.members
        )
        return found.type, state(found.state), found.assignor, found.coordinator, members

    return ended(await admin.groups.describe(name), described)[name]


async def committed(admin: Admin, name: str) -> Any:
    found = (await admin.group_offsets.list(name))[name]
    return [(*partition, each.offset, each.metadata) for partition, each in found.items()]


async def committed_by(admin: Admin, name: str, wanted: list[tuple[str, int, int, str]]) -> Any:
    offsets_of = {TopicPartition(topic, at): Committed(offset, metadata) for topic, at, offset, metadata in wanted}
    outcomes = await admin.group_offsets.alter(name, offsets_of)
    errors = outcomes.errors
    return {tuple(each): each not in errors for each in outcomes}


async def groups_deleted(admin: Admin, names: list[str]) -> Any:
    return ended(await admin.groups.delete(*names), done)


async def elected(admin: Admin, partitions: list[tuple[str, int]]) -> Any:
    found = await admin.partitions.elect_leaders([TopicPartition(*each) for each in partitions])
    return ended(found, lambda _: None, tuple)


async def users(admin: Admin) -> Any:
    found = (await admin.users.describe()).check()
    return {name: {int(mechanism): count for mechanism, count in each.items()} for name, each in found.items()}


async def acls(admin: Admin) -> Any:
    return [
        (each.resource, each.name, each.principal, each.operation, each.permission, each.pattern, each.host)
        for each in await admin.acls.list()
    ]


QUESTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(cluster, topics, configs, altered, created, grown, deleted, offsets, records_deleted),
        *(groups, group, committed, committed_by, groups_deleted, elected, users, acls),
    )
}


async def sdk_answer(admin: Admin, question: str, *arguments: Any) -> Any:
    """The answer of the SDK's Admin."""
    return await QUESTIONS[question](admin, *arguments)
