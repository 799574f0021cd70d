"""The import paths of kafkalite_sdk that programs use: they do not change when modules move."""

import importlib

import pytest

from tests.kit.documented_imports import documented_imports

PUBLIC = {
    "kafkalite_sdk": """
        Admin AdminOptions ClientMechanism ClientOptions ClientSteps Consumer ConsumerHealth ConsumerOptions
        Deserializer DetachedTransaction Environment FutureRecordMetadata Job OAuthToken OffsetAndMetadata
        OffsetAndTimestamp Producer ProducerOptions ProducerRecord RebalanceListener Record RecordMetadata
        SecurityOptions TopicPartition __version__ blocking errors
    """,
    "kafkalite_sdk.admin": """
        EARLIEST HIGH_WATERMARK LATEST MAX_TIMESTAMP Acl AclFilter AclOperation AclResource Admin ClusterDescription
        Committed Config ConfigChange ConfigOperation ConfigSource Coordination CreatedTopic DelegationToken Election
        Features GroupDescription GroupLag GroupListing GroupMember InvalidTreeNode ListedOffset LogDirectory
        NewCredential NewTopic OpenTransaction Outcomes PartitionDescription PartitionLag Pattern Permission
        ProducerEpoch ProducerState QuotaEntity Reassignment RemovedMember Replica ReplicaInfo Resource ResourceType
        ScramMechanism TopicDescription TransactionDescription TransactionListing Upgrade UserMechanism
    """,
    "kafkalite_sdk.blocking": "Admin ColumnReader ColumnsFuture Connection Consumer Producer RecordFuture",
    "kafkalite_sdk.columns": "COLUMNS ColumnBatch ColumnReader ReaderOptions",
    "kafkalite_sdk.compat.aiokafka": """
        AIOKafkaClient AIOKafkaConsumer AIOKafkaProducer ConsumerRebalanceListener ConsumerRecord ConsumerStoppedError
        IllegalOperation OffsetAndMetadata OffsetAndTimestamp TopicPartition install
    """,
    "kafkalite_sdk.interceptors": "ConsumerInterceptor DeadLetterTopic ProducerInterceptor SealedBatch",
    "kafkalite_sdk.interceptors.opentelemetry": "ConsumerTracing ProducerTracing",
    "kafkalite_sdk.registry": """
        AvroDeserializer AvroSerializer JsonDeserializer JsonSerializer ProtobufDeserializer ProtobufSerializer
        RegistryAccessError RegistryUnavailableError Schema SchemaRegistry
    """,
    "kafkalite_sdk.rpc": "Call Connection Reply",
    "kafkalite_sdk.zk": """
        CallbackHandler ConnectorOptions ConsumerConnector ConsumerIdInUseError ConsumerRebalanceFailedError
        ConsumerRebalanceListener ConsumerTimeoutError FetchedPartition KeyedMessage MessageStream
        OffsetCommitError PartitionFetch Producer SimpleConsumer
    """,
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in PUBLIC for name in PUBLIC[module].split()])
def test_public_name_is_imported_from_its_module(module: str, name: str) -> None:
    namespace: dict[str, object] = {}
    exec(f"from {module} import {name}", namespace)  # submodules, too
    assert name in namespace


@pytest.mark.parametrize("module", PUBLIC)
def test_offered_names_are_listed_as_public(module: str) -> None:
    offered = set(getattr(importlib.import_module(module), "__all__", ()))
    assert offered <= set(PUBLIC[module].split())


def test_documented_imports_are_public() -> None:
    imports = documented_imports("kafkalite_sdk")
    assert len(imports) > 10
    assert {each for each in imports if each[1] not in PUBLIC.get(each[0], "").split()} == set()
