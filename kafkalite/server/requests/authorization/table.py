"""The authorisation table: what each API key needs, in all its versions. `docs/authorization.md` is generated from it.

Each check names a right (operation, resource type), the resources of the request and what happens without the right:

| effect | without the right |
|---|---|
| REFUSE | the whole request is refused with the error |
| FILTER | the entry of the request is refused with the error, the others are served |
| HIDE | the entry is left out of the response |
| BLANK | fields of the response are not filled in |

REFUSE and FILTER are done before the handler runs, so nothing is created or appended for what is refused. HIDE and
BLANK are done where the response is built. A key without a row is not served by a broker with an authorizer.

Sources: KafkaApis.scala, ControllerApis.scala, AclApis.scala, ConfigHelper.scala, AuthHelper.scala and
DescribeTopicPartitionsRequestHandler.java of Apache Kafka 3.9 and 4.4.
"""

from enum import Enum
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType

VERSION_MAX = 1 << 15
TOPIC = AclResourceType.TOPIC
GROUP = AclResourceType.GROUP
CLUSTER = AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN, USER = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

ERRORS = {
    TOPIC: KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: KafkaErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: KafkaErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: KafkaErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Effect(Enum):
    """What happens without the right."""

    REFUSE = "refuse"
    FILTER = "filter"
    HIDE = "hide"
    BLANK = "blank"


class Right(NamedTuple):
    """An operation on a resource type."""

    operation: AclOperation
    resource_type: AclResourceType

    def __str__(self) -> str:
        return f"{self.operation.title} on {self.resource_type.title}"


class Check(NamedTuple):
    """One check of an API key.

    Arguments:
        right: what is needed.
        effect: without it.
        of: field of the request with the names of the resources: `group_id`, `topics.name`, or an array of names; "" =
            the cluster, or what `note` says.
        unless: a right on the cluster that suffices, too.
        since, until: first and last version with this check.
        note: more about it, for the documentation.
    """

    right: Right
    effect: Effect
    of: str = ""
    unless: Right | None = None
    since: int = 0
    until: int = VERSION_MAX
    note: str = ""

    @property
    def error(self) -> KafkaErrorCode:
        """The error code of what is refused."""
        return ERRORS[self.right.resource_type]

    def applies(self, version: int) -> bool:
        """Return whether requests of a version are checked."""
        return self.since <= version <= self.until


class Row(NamedTuple):
    """One API key.

    Arguments:
        name: of the key.
        checks: in their order; none = every client may send it.
        entries: the array of the request whose entries have errors of their own, and that of the response.
        doubled: a request that is refused as a whole has its error in the entries, too.
        own: the checks need more than their row says: `guards.OWN` has their function.
    """

    name: str
    checks: tuple[Check, ...] = ()
    entries: tuple[str, str] | None = None
    doubled: bool = False
    own: bool = False


def on_cluster(operation: AclOperation, **more: int) -> Check:
    """The request is refused without a right on the cluster; `more`: as for `Check`."""
    return Check(Right(operation, CLUSTER), Effect.REFUSE, **more)  # type: ignore[arg-type]


def on_group(operation: AclOperation, of: str = "group_id") -> Check:
    """The request is refused without a right on its group."""
    return Check(Right(operation, GROUP), Effect.REFUSE, of)


def on_transaction(
    operation: AclOperation, of: str = "transactional_id", note: str = "", until: int = VERSION_MAX
) -> Check:
    """The request is refused without a right on its transactional id."""
    return Check(Right(operation, TRANSACTIONAL_ID), Effect.REFUSE, of, note=note, until=until)


def on_topics(operation: AclOperation, of: str = "topics.name", note: str = "") -> Check:
    """The topics of the request are refused on which there is no right."""
    return Check(Right(operation, TOPIC), Effect.FILTER, of, note=note)


def config_checks(operation: AclOperation) -> tuple[Check, ...]:
    """The resources of the request are refused, each by the right on its type."""
    of = "resources.resource_name"
    return (
        Check(Right(operation, TOPIC), Effect.FILTER, of, note="resources of type topic"),
        Check(Right(operation, GROUP), Effect.FILTER, of, note="resources of type group"),
        Check(Right(operation, CLUSTER), Effect.FILTER, note="brokers, their loggers and client metrics"),
    )


TOPICS = "topics", "topics"
DESCRIBE_CLUSTER, DESCRIBE_TOPIC = Right(DESCRIBE, CLUSTER), Right(DESCRIBE, TOPIC)
TOPICS_OR_ALL = "each of the topics; a pattern needs it for all topics (`*`)"
OPERATIONS = Check(DESCRIBE_CLUSTER, Effect.BLANK, note="the authorized operations on the cluster are 0")

TABLE: dict[int, Row] = {
    0: Row(
        "Produce",
        (on_transaction(WRITE, note="if a batch is transactional"), on_topics(WRITE, "topic_data.name")),
        ("topic_data", "responses"),
        own=True,
    ),
    1: Row(
        "Fetch",
        (
            Check(Right(CLUSTER_ACTION, CLUSTER), Effect.REFUSE, note="fetches of replicas"),
            on_topics(READ, "topics.topic", "fetches of clients; of a session again when an ACL has changed"),
        ),
        ("topics", "responses"),
        own=True,
    ),
    2: Row("ListOffsets", (on_topics(DESCRIBE),), TOPICS),
    3: Row(
        "Metadata",
        (
            on_topics(DESCRIBE, note="by name and by id; left out of a list of all topics"),
            Check(
                Right(CREATE, TOPIC),
                Effect.FILTER,
                "topics.name",
                Right(CREATE, CLUSTER),
                note="missing topics that the request creates",
            ),
            OPERATIONS,
        ),
        own=True,
    ),
    4: Row("LeaderAndIsr", (on_cluster(CLUSTER_ACTION),)),
    5: Row("StopReplica", (on_cluster(CLUSTER_ACTION),)),
    6: Row("UpdateMetadata", (on_cluster(CLUSTER_ACTION),)),
    7: Row("ControlledShutdown", (on_cluster(CLUSTER_ACTION),)),
    8: Row("OffsetCommit", (on_group(READ), on_topics(READ, note="by name and by id")), TOPICS, own=True),
    9: Row(
        "OffsetFetch",
        (
            Check(Right(DESCRIBE, GROUP), Effect.FILTER, "groups.group_id", note="up to v7 the group of the request"),
            on_topics(DESCRIBE, "groups.topics.name", "left out of a list of all topics"),
        ),
        ("topics", "topics"),
        own=True,
    ),
    10: Row(
        "FindCoordinator",
        (
            Check(Right(DESCRIBE, GROUP), Effect.FILTER, "coordinator_keys", note="keys that are groups"),
            Check(Right(DESCRIBE, TRANSACTIONAL_ID), Effect.FILTER, "coordinator_keys", note="transactional ids"),
        ),
        ("coordinator_keys", "coordinators"),
        own=True,
    ),
    11: Row("JoinGroup", (on_group(READ),)),
    12: Row("Heartbeat", (on_group(READ),)),
    13: Row("LeaveGroup", (on_group(READ),)),
    14: Row("SyncGroup", (on_group(READ),)),
    15: Row("DescribeGroups", (Check(Right(DESCRIBE, GROUP), Effect.FILTER, "groups"),), ("groups", "groups")),
    16: Row("ListGroups", (Check(Right(DESCRIBE, GROUP), Effect.HIDE, unless=DESCRIBE_CLUSTER),)),
    17: Row("SaslHandshake"),
    18: Row("ApiVersions"),
    19: Row(
        "CreateTopics",
        (
            Check(Right(CREATE, TOPIC), Effect.FILTER, "topics.name", Right(CREATE, CLUSTER)),
            Check(
                Right(DESCRIBE_CONFIGS, TOPIC),
                Effect.BLANK,
                note="configs, partitions and replication factor of a created topic",
            ),
        ),
        TOPICS,
    ),
    20: Row(
        "DeleteTopics",
        (
            Check(
                Right(DELETE, TOPIC),
                Effect.FILTER,
                "topics.name",
                Right(DELETE, CLUSTER),
                note="by name and by id",
            ),
            Check(DESCRIBE_TOPIC, Effect.BLANK, note="the name of a topic in a refusal by id"),
            Check(
                DESCRIBE_TOPIC, Effect.FILTER, "topics.name", note="by name: with it, a missing topic is an unknown one"
            ),
        ),
        ("topics", "responses"),
        own=True,
    ),
    21: Row("DeleteRecords", (on_topics(DELETE),), TOPICS),
    22: Row(
        "InitProducerId",
        (
            on_transaction(WRITE, note="with a transactional id"),
            Check(
                Right(IDEMPOTENT_WRITE, CLUSTER),
                Effect.REFUSE,
                note="without one, unless there is a topic with the right Write",
            ),
        ),
        own=True,
    ),
    23: Row(
        "OffsetForLeaderEpoch",
        (Check(DESCRIBE_TOPIC, Effect.FILTER, "topics.topic", Right(CLUSTER_ACTION, CLUSTER)),),
        TOPICS,
    ),
    24: Row(
        "AddPartitionsToTxn",
        (
            on_cluster(CLUSTER_ACTION, since=4),
            on_transaction(WRITE, "v3_and_below_transactional_id", until=3),
            Check(
                Right(WRITE, TOPIC),
                Effect.FILTER,
                "v3_and_below_topics.name",
                until=3,
                note="the others have OPERATION_NOT_ATTEMPTED",
            ),
        ),
        ("v3_and_below_topics", "results_by_topic_v3_and_below"),
        own=True,
    ),
    25: Row("AddOffsetsToTxn", (on_transaction(WRITE), on_group(READ))),
    26: Row("EndTxn", (on_transaction(WRITE),)),
    27: Row(
        "WriteTxnMarkers",
        (Check(Right(CLUSTER_ACTION, CLUSTER), Effect.REFUSE, unless=Right(ALTER, CLUSTER)),),
        ("markers", "markers"),
    ),
    28: Row("TxnOffsetCommit", (on_transaction(WRITE), on_group(READ), on_topics(READ)), TOPICS),
    29: Row("DescribeAcls", (on_cluster(DESCRIBE),), own=True),
    30: Row("CreateAcls", (on_cluster(ALTER),), ("creations", "results"), own=True),
    31: Row("DeleteAcls", (on_cluster(ALTER),), ("filters", "filter_results"), own=True),
    32: Row("DescribeConfigs", config_checks(DESCRIBE_CONFIGS), ("resources", "results"), own=True),
    33: Row("AlterConfigs", config_checks(ALTER_CONFIGS), ("resources", "responses"), own=True),
    34: Row("AlterReplicaLogDirs", (on_cluster(ALTER),), ("dirs", "results"), own=True),
    35: Row("DescribeLogDirs", (on_cluster(DESCRIBE),)),
    36: Row("SaslAuthenticate"),
    37: Row("CreatePartitions", (on_topics(ALTER),), ("topics", "results")),
    38: Row(
        "CreateDelegationToken",
        (
            Check(
                Right(AclOperation.CREATE_TOKENS, USER),
                Effect.REFUSE,
                "owner_principal_name",
                note="the owner, if it is not the requester",
            ),
        ),
        own=True,
    ),
    39: Row("RenewDelegationToken"),
    40: Row("ExpireDelegationToken"),
    41: Row(
        "DescribeDelegationToken",
        (
            Check(
                Right(DESCRIBE, DELEGATION_TOKEN),
                Effect.HIDE,
                note="tokens of others, unless DescribeTokens on their owner is allowed",
            ),
            Check(
                Right(AclOperation.DESCRIBE_TOKENS, USER),
                Effect.HIDE,
                note="tokens of others, unless Describe on the token is allowed",
            ),
        ),
    ),
    42: Row("DeleteGroups", (Check(Right(DELETE, GROUP), Effect.FILTER, "groups_names"),), ("groups_names", "results")),
    43: Row("ElectLeaders", (on_cluster(ALTER),), ("topic_partitions", "replica_election_results"), doubled=True),
    44: Row("IncrementalAlterConfigs", config_checks(ALTER_CONFIGS), ("resources", "responses"), own=True),
    45: Row("AlterPartitionReassignments", (on_cluster(ALTER),), ("topics", "responses"), doubled=True),
    46: Row("ListPartitionReassignments", (on_cluster(DESCRIBE),)),
    47: Row("OffsetDelete", (on_group(DELETE), on_topics(READ)), TOPICS),
    48: Row("DescribeClientQuotas", (on_cluster(DESCRIBE_CONFIGS),)),
    49: Row("AlterClientQuotas", (on_cluster(ALTER_CONFIGS),), ("entries", "entries")),
    50: Row("DescribeUserScramCredentials", (on_cluster(DESCRIBE),)),
    51: Row("AlterUserScramCredentials", (on_cluster(ALTER),), own=True),
    56: Row("AlterPartition", (on_cluster(CLUSTER_ACTION),)),
    57: Row("UpdateFeatures", (on_cluster(ALTER),)),
    60: Row("DescribeCluster", (OPERATIONS,)),
    61: Row("DescribeProducers", (on_topics(READ),), TOPICS),
    65: Row(
        "DescribeTransactions",
        (
            Check(Right(DESCRIBE, TRANSACTIONAL_ID), Effect.FILTER, "transactional_ids"),
            Check(DESCRIBE_TOPIC, Effect.HIDE, note="topics of the transaction"),
        ),
        ("transactional_ids", "transaction_states"),
    ),
    66: Row("ListTransactions", (Check(Right(DESCRIBE, TRANSACTIONAL_ID), Effect.HIDE),)),
    68: Row(
        "ConsumerGroupHeartbeat",
        (on_group(READ), Check(DESCRIBE_TOPIC, Effect.REFUSE, "subscribed_topic_names", note=TOPICS_OR_ALL)),
        own=True,
    ),
    69: Row(
        "ConsumerGroupDescribe",
        (
            Check(Right(DESCRIBE, GROUP), Effect.FILTER, "group_ids"),
            Check(DESCRIBE_TOPIC, Effect.FILTER, note="groups whose members read a topic without the right"),
        ),
        ("group_ids", "groups"),
    ),
    74: Row("ListConfigResources", (on_cluster(DESCRIBE_CONFIGS),)),
    75: Row("DescribeTopicPartitions", (on_topics(DESCRIBE, note="left out of a list of all topics"),), own=True),
    10000: Row(
        "ListGroupsPlus",
        (
            Check(Right(DESCRIBE, GROUP), Effect.FILTER, "groups", DESCRIBE_CLUSTER, note="left out of a list of all"),
            Check(Right(CLUSTER_ACTION, CLUSTER), Effect.REFUSE, note="requests between brokers"),
        ),
        ("groups", "groups"),
        own=True,
    ),
    10001: Row(
        "CreateGroup",
        (
            on_group(READ),
            Check(DESCRIBE_TOPIC, Effect.REFUSE, "topics", note=TOPICS_OR_ALL),
            Check(Right(CLUSTER_ACTION, CLUSTER), Effect.REFUSE, note="instead of both between brokers"),
        ),
        own=True,
    ),
    10002: Row("DeleteGroup", (Check(Right(DELETE, GROUP), Effect.FILTER, "groups"),), ("groups", "results")),
    10003: Row(
        "RegisterConsumer",
        (
            on_group(READ),
            Check(DESCRIBE_TOPIC, Effect.REFUSE, "topics", note="each of the topics and the claimed topics"),
        ),
        own=True,
    ),
    10004: Row("HeartbeatPlus", (on_group(READ),)),
    10005: Row("RewindConsumer", (on_group(READ), on_topics(READ)), TOPICS),
    10006: Row("ListSegments", (on_topics(DESCRIBE),), TOPICS),
    10007: Row("DescribeCoordination", (on_cluster(DESCRIBE),), own=True),
}
