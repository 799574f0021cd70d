"""Questions to confluent-kafka's AdminClient, with answers as plain values that other clients can give, too.

An error is the pair of its code and the broker's message; librdkafka has texts of its own where a broker sends none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as cka

from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import dropped_later, killable

Admin = cka.AdminClient
SPECS = {-1: cka.OffsetSpec.latest, -2: cka.OffsetSpec.earliest, -3: cka.OffsetSpec.max_timestamp}


def ended(future: Any, value: Callable[[Any], Any]) -> Any:
    """The value of a result, or the code and the message of its error."""
    try:
        return value(future.result(DEADLINE_S))
    except ck.KafkaException as error:
        return error.args[0].code(), error.args[0].str()


def nodes(found: Any) -> list[int]:
    return [each.id for each in found]


def operations(found: Any) -> list[int]:
    return sorted(each.value for each in found)


def cluster(admin: Admin) -> Any:
    found = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
    brokers = sorted((each.id, each.host, each.port) for each in found.nodes)
    return found.cluster_id, found.controller.id, brokers, operations(found.authorized_operations)


def topics(admin: Admin, names: list[str]) -> Any:
    def described(found: Any) -> Any:
        partitions = [(each.id, each.leader.id, nodes(each.replicas), nodes(each.isr)) for each in found.partitions]
        return found.is_internal, partitions, operations(found.authorized_operations)

    found = admin.describe_topics(ck.TopicCollection(names), include_authorized_operations=True)
    return {name: ended(each, described) for name, each in found.items()}


def configs(admin: Admin, resources: list[tuple[str, str]]) -> Any:
    def described(found: Any) -> Any:
        return {each.name: (each.value, each.source, each.is_read_only, each.is_sensitive) for each in found.values()}

    asked = {cka.ConfigResource(kind, name): (kind, name) for kind, name in resources}
    return {asked[key]: ended(each, described) for key, each in admin.describe_configs(list(asked)).items()}


def altered(admin: Admin, changes: Mapping[str, Mapping[str, str | None]]) -> Any:
    kinds = cka.AlterConfigOpType
    resources = [
        cka.ConfigResource(
            "topic",
            topic,
            incremental_configs=[
                cka.ConfigEntry(key, value, incremental_operation=kinds.DELETE if value is None else kinds.SET)
                for key, value in configs_of.items()
            ],
        )
        for topic, configs_of in changes.items()
    ]
    return {key.name: ended(each, bool) for key, each in admin.incremental_alter_configs(resources).items()}


def created(admin: Admin, new: list[tuple[str, int, int, Mapping[str, str]]]) -> Any:
    wanted = [
        cka.NewTopic(name, num_partitions=count, replication_factor=factor, config=dict(configs_of))
        for name, count, factor, configs_of in new
    ]
    return {name: ended(each, bool) for name, each in admin.create_topics(wanted, validate_only=True).items()}


def grown(admin: Admin, counts: Mapping[str, int]) -> Any:
    wanted = [cka.NewPartitions(name, count) for name, count in counts.items()]
    return {name: ended(each, bool) for name, each in admin.create_partitions(wanted, validate_only=True).items()}


def deleted(admin: Admin, names: list[str]) -> Any:
    return {name: ended(each, bool) for name, each in admin.delete_topics(names).items()}


def offsets(admin: Admin, times: Mapping[tuple[str, int], int]) -> Any:
    asked = {
        ck.TopicPartition(*each): SPECS[time_ms]() if time_ms < 0 else cka.OffsetSpec.for_timestamp(time_ms)
        for each, time_ms in times.items()
    }
    found = admin.list_offsets(asked)
    return {
        (key.topic, key.partition): ended(each, lambda one: (one.offset, one.timestamp, one.leader_epoch))
        for key, each in found.items()
    }


def records_deleted(admin: Admin, before: Mapping[tuple[str, int], int]) -> Any:
    found = admin.delete_records([ck.TopicPartition(*each, offset) for each, offset in before.items()])
    return {(key.topic, key.partition): ended(each, lambda one: one.low_watermark) for key, each in found.items()}


def groups(admin: Admin) -> Any:
    found = admin.list_consumer_groups().result(DEADLINE_S)
    return sorted((each.group_id, each.type.name.lower(), each.state.name) for each in found.valid)


def group(admin: Admin, name: str) -> Any:
    def described(found: Any) -> Any:
        members = sorted(
            (
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.host.removeprefix("/"),
                sorted((one.topic, one.partition) for one in each.assignment.topic_partitions),
            )
            for each in found.members
        )
        kind = found.type.name.lower()
        return kind, found.state.name, found.partition_assignor, found.coordinator.id, members

    return ended(admin.describe_consumer_groups([name])[name], described)


def committed(admin: Admin, name: str) -> Any:
    def listed(found: Any) -> Any:
        return sorted((each.topic, each.partition, each.offset, each.metadata or "") for each in found.topic_partitions)

    return ended(admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(name)])[name], listed)


def committed_by(admin: Admin, name: str, wanted: list[tuple[str, int, int, str]]) -> Any:
    partitions = [ck.TopicPartition(topic, number, offset, metadata) for topic, number, offset, metadata in wanted]
    (found,) = admin.alter_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(name, partitions)]).values()
    return ended(found, lambda one: {(each.topic, each.partition): each.error is None for each in one.topic_partitions})


def groups_deleted(admin: Admin, names: list[str]) -> Any:
    return {name: ended(each, bool) for name, each in admin.delete_consumer_groups(names).items()}


def elected(admin: Admin, partitions: list[tuple[str, int]]) -> Any:
    wanted = [ck.TopicPartition(*each) for each in partitions]
    found = admin.elect_leaders(ck.ElectionType.PREFERRED, wanted).result(DEADLINE_S)
    return {(key.topic, key.partition): error and (error.code(), error.str()) for key, error in found.items()}


def users(admin: Admin) -> Any:
    found = admin.describe_user_scram_credentials().result(DEADLINE_S)
    return {
        name: {each.mechanism.value: each.iterations for each in one.scram_credential_infos}
        for name, one in found.items()
    }


def acls(admin: Admin) -> Any:
    everything = cka.AclBindingFilter(
        cka.ResourceType.ANY,
        None,
        cka.ResourcePatternType.ANY,
        None,
        None,
        cka.AclOperation.ANY,
        cka.AclPermissionType.ANY,
    )
    found = admin.describe_acls(everything).result(DEADLINE_S)
    return sorted(
        (
            each.restype.value,
            each.name,
            each.principal,
            each.operation.value,
            each.permission_type.value,
            each.resource_pattern_type.value,
            each.host,
        )
        for each in found
    )


QUESTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(cluster, topics, configs, altered, created, grown, deleted, offsets, records_deleted),
        *(groups, group, committed, committed_by, groups_deleted, elected, users, acls),
    )
}


@killable
def confluent_answer(address: str, question: str, *arguments: Any) -> Any:
    """The answer of confluent-kafka's AdminClient, in a process of its own."""
    admin = cka.AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)
    return QUESTIONS[question](admin, *arguments)
