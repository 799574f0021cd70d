"""The admin clients behind one face; refusals are `Refused` with Kafka's code, whatever the library makes of them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, Self

import confluent_kafka as ck
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.errors import BrokerResponseError as AioError
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import admin as cka
from kafkalite_sdk.admin import Admin as SdkClient
from kafkalite_sdk.admin import NewTopic as SdkNewTopic
from kafkalite_sdk.admin import Resource as SdkResource

from kafkalite.errors import BrokerResponseError as SdkError
from kafkalite.model import TopicPartition as SdkTopicPartition
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import DEADLINE_S, Refused
from tests.kit.isolated import Isolated

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import BrokerResponseError

# Kafka's ConfigSource by number, as DescribeConfigs v1 and later carry it.
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
DEFAULT_COUNT = -1


class Admin(Protocol):
    """Topic and config administration; every call raises `Refused` where the broker answers an error."""

    name: str

    def __init__(self, address: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def create(
        self,
        topic: str,
        partitions: int = DEFAULT_COUNT,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> dict[int, list[int]]:
        """Partition -> replicas, all led by a replica in sync."""

    def grow(self, topic: str, count: int, validate_only: bool = False) -> None: ...

    def delete(self, topic: str) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The log start offset afterwards."""

    def config(self, topic: str, key: str) -> tuple[str, str]:
        """Value and source."""

    def set_config(self, topic: str, key: str, value: str) -> None: ...


@contextmanager
def refusals() -> Iterator[None]:
    """Turn each library's own error into `Refused`."""
    try:
        yield
    except ck.KafkaException as error:
        raise Refused(error.args[0].code(), error.args[0].str()) from error
    except (AioError, BrokerResponseError) as error:
        raise Refused(error.errno, str(error)) from error
    except SdkError as error:
        raise Refused(error.code, str(error)) from error


class LibrdkafkaAdmin:
    """The methods of `Admin` over librdkafka's AdminClient, for `Isolated`."""

    def __init__(self, address: str) -> None:
        self._admin = cka.AdminClient({"bootstrap.servers": address, "log_level": QUIET})

    def close(self) -> None:
        """Destroy the client."""
        del self._admin

    def create(
        self,
        topic: str,
        partitions: int = DEFAULT_COUNT,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        layout: dict[str, object] = {"num_partitions": partitions, "replication_factor": replicas}
        if assignment is not None:
            layout = {
                "num_partitions": len(assignment),
                "replica_assignment": [assignment[n] for n in sorted(assignment)],
            }
        new = cka.NewTopic(topic, config=dict(configs or {}), **layout)
        with refusals():
            self._admin.create_topics([new], validate_only=validate_only)[topic].result(DEADLINE_S)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=DEADLINE_S).topics)

    def partitions(self, topic: str) -> dict[int, list[int]]:
        described = self._admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        assert all(p.leader in p.isrs for p in described.values())
        return {number: p.replicas for number, p in described.items()}

    def grow(self, topic: str, count: int, validate_only: bool = False) -> None:
        new = [cka.NewPartitions(topic, count)]
        with refusals():
            self._admin.create_partitions(new, validate_only=validate_only)[topic].result(DEADLINE_S)

    def delete(self, topic: str) -> None:
        with refusals():
            self._admin.delete_topics([topic])[topic].result(DEADLINE_S)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        wanted = [ck.TopicPartition(topic, partition, ck.OFFSET_END if before == -1 else before)]
        with refusals():
            (answer,) = self._admin.delete_records(wanted).values()
            return int(answer.result(DEADLINE_S).low_watermark)

    def config(self, topic: str, key: str) -> tuple[str, str]:
        with refusals():
            (answer,) = self._admin.describe_configs([cka.ConfigResource("topic", topic)]).values()
            entry = answer.result(DEADLINE_S)[key]
        return entry.value, SOURCES[entry.source]

    def set_config(self, topic: str, key: str, value: str) -> None:
        change = cka.ConfigEntry(key, value, incremental_operation=cka.AlterConfigOpType.SET)
        resource = cka.ConfigResource("topic", topic, incremental_configs=[change])
        with refusals():
            (answer,) = self._admin.incremental_alter_configs([resource]).values()
            answer.result(DEADLINE_S)


class ConfluentAdmin:
    """librdkafka's AdminClient in a process that can be killed; changes configs incrementally."""

    name = "confluent-kafka"

    def __init__(self, address: str) -> None:
        self._isolated = Isolated(LibrdkafkaAdmin, address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._isolated.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._isolated, name)


class KafkaPythonAdmin:
    """kafka-python's KafkaAdminClient; describes the configs before it changes one."""

    name = "kafka-python"

    def __init__(self, address: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def create(
        self,
        topic: str,
        partitions: int = DEFAULT_COUNT,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        layout: dict[str, object] = {"num_partitions": partitions, "replication_factor": replicas}
        if assignment is not None:
            layout = {"assignments": dict(assignment)}
        new = {topic: {"configs": dict(configs or {}), **layout}}
        with refusals():
            self._admin.create_topics(new, validate_only=validate_only)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions(self, topic: str) -> dict[int, list[int]]:
        (described,) = self._admin.describe_topics([topic])
        assert all(p["leader_id"] in p["isr_nodes"] for p in described["partitions"])
        return {p["partition_index"]: p["replica_nodes"] for p in described["partitions"]}

    def grow(self, topic: str, count: int, validate_only: bool = False) -> None:
        with refusals():
            self._admin.create_partitions({topic: count}, validate_only=validate_only)

    def delete(self, topic: str) -> None:
        with refusals():
            self._admin.delete_topics([topic])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        layout = TopicPartition(topic, partition)
        with refusals():
            return int(self._admin.delete_records({layout: before})[layout]["low_watermark"])

    def config(self, topic: str, key: str) -> tuple[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with refusals():
            entry = self._admin.describe_configs([resource], config_filter="all")["topic"][topic][key]
        return entry["value"], entry["config_source"]

    def set_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        answer = self._admin.alter_configs([resource])["topic"][topic]
        if answer != "OK":  # it hands back the error's text alone: "[Error 40] ..."
            raise Refused(int(answer.split("]")[0].removeprefix("[Error ")), answer)


class AioKafkaAdmin:
    """aiokafka's admin client: answers are raw responses, configs change by the older AlterConfigs."""

    name = "aiokafka"

    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self._admin = self._runner.run(self._open(address))

    @staticmethod
    async def _open(address: str) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        return admin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()

    def create(
        self,
        topic: str,
        partitions: int = DEFAULT_COUNT,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        counts = (partitions, replicas) if assignment is None else (-1, -1)
        new = AioNewTopic(topic, *counts, assignment, dict(configs or {}))
        answer = self._runner.run(self._admin.create_topics([new], validate_only=validate_only))
        self._judge(answer.topic_errors[0][1], str(answer.topic_errors))

    @staticmethod
    def _judge(code: int, text: str) -> None:
        if code:
            raise Refused(code, text)

    def topics(self) -> set[str]:
        return set(self._runner.run(self._admin.list_topics()))

    def partitions(self, topic: str) -> dict[int, list[int]]:
        (described,) = self._runner.run(self._admin.describe_topics([topic]))
        assert all(p["leader"] in p["isr"] for p in described["partitions"])
        return {p["partition"]: p["replicas"] for p in described["partitions"]}

    def grow(self, topic: str, count: int, validate_only: bool = False) -> None:
        new = {topic: AioNewPartitions(count)}
        with refusals():
            self._runner.run(self._admin.create_partitions(new, validate_only=validate_only))

    def delete(self, topic: str) -> None:
        answer = self._runner.run(self._admin.delete_topics([topic]))
        self._judge(answer.topic_error_codes[0][1], topic)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        layout = AioTopicPartition(topic, partition)
        with refusals():
            answer = self._runner.run(self._admin.delete_records({layout: RecordsToDelete(before)}))
            return int(answer[layout])

    def config(self, topic: str, key: str) -> tuple[str, str]:
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic)
        (answer,) = self._runner.run(self._admin.describe_configs([resource]))
        code, message, _, _, entries = answer.resources[0]
        self._judge(code, message)
        entry = next(entry for entry in entries if entry[0] == key)
        return entry[1], SOURCES[entry[3]]

    def set_config(self, topic: str, key: str, value: str) -> None:
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, {key: value})
        (answer,) = self._runner.run(self._admin.alter_configs([resource]))
        self._judge(answer.resources[0][0], answer.resources[0][1])


class SdkAdmin:
    """The SDK's Admin."""

    name = "kafkalite-sdk"

    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self._admin = SdkClient(address)

    def __enter__(self) -> Self:
        self._runner.run(self._admin.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()

    def create(
        self,
        topic: str,
        partitions: int = DEFAULT_COUNT,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = SdkNewTopic(topic, partitions, replicas, assignment, configs or {})
        with refusals():
            self._runner.run(self._admin.topics.create(new, validate_only=validate_only)).check()

    def topics(self) -> set[str]:
        return {each.name for each in self._runner.run(self._admin.topics.list())}

    def partitions(self, topic: str) -> dict[int, list[int]]:
        described = self._runner.run(self._admin.topics.describe(topic))[topic]
        assert all(each.leader in each.isr for each in described.partitions)
        return {each.partition: [*each.replicas] for each in described.partitions}

    def grow(self, topic: str, count: int, validate_only: bool = False) -> None:
        with refusals():
            self._runner.run(self._admin.topics.create_partitions({topic: count}, validate_only=validate_only)).check()

    def delete(self, topic: str) -> None:
        with refusals():
            self._runner.run(self._admin.topics.delete(topic)).check()

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        key = SdkTopicPartition(topic, partition)
        with refusals():
            return self._runner.run(self._admin.partitions.delete_records({key: before}))[key]

    def config(self, topic: str, key: str) -> tuple[str, str]:
        resource = SdkResource.topic(topic)
        with refusals():
            found = self._runner.run(self._admin.configs.describe(resource))[resource][key]
        assert found.value is not None
        return found.value, SOURCES[found.source]

    def set_config(self, topic: str, key: str, value: str) -> None:
        with refusals():
            self._runner.run(self._admin.configs.alter({SdkResource.topic(topic): {key: value}})).check()


ADMINS: tuple[Callable[[str], Any], ...] = (ConfluentAdmin, KafkaPythonAdmin, AioKafkaAdmin, SdkAdmin)
