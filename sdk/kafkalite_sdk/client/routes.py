"""The requests that `rpc` and `admin` send, by API key: the broker that serves each, and whether it may be repeated.

Pure. Numbers, not classes, so that a message is imported when it is used.
"""

from enum import Enum
from typing import NamedTuple


class Route(Enum):
    """The broker that serves a request."""

    ANY = "any broker"
    CONTROLLER = "the controller"
    LEADER = "the leader of a partition"
    GROUP = "the coordinator of a group"
    TRANSACTION = "the coordinator of a transactional id"
    BROKER = "one broker by its id"


class Row(NamedTuple):
    """A request.

    Attributes:
        route: the broker that serves it.
        repeatable: a second one has the effect and the response of the first; so it is sent again when its response was
            lost. Others fail with OutcomeUnknownError then.
    """

    route: Route
    repeatable: bool


ROUTES: dict[int, Row] = {
    2: Row(Route.LEADER, True),  # ListOffsets
    1: Row(Route.LEADER, True),  # Fetch
    3: Row(Route.ANY, True),  # Metadata
    8: Row(Route.GROUP, True),  # OffsetCommit
    9: Row(Route.GROUP, True),  # OffsetFetch
    10: Row(Route.ANY, True),  # FindCoordinator
    13: Row(Route.GROUP, False),  # LeaveGroup
    15: Row(Route.GROUP, True),  # DescribeGroups
    16: Row(Route.BROKER, True),  # ListGroups
    18: Row(Route.ANY, True),  # ApiVersions
    19: Row(Route.CONTROLLER, False),  # CreateTopics
    20: Row(Route.CONTROLLER, False),  # DeleteTopics
    21: Row(Route.LEADER, True),  # DeleteRecords
    22: Row(Route.TRANSACTION, False),  # InitProducerId with a transactional id: each one increments the epoch
    23: Row(Route.LEADER, True),  # OffsetForLeaderEpoch
    26: Row(Route.TRANSACTION, True),  # EndTxn: a second one with the same outcome changes nothing (KIP-890)
    27: Row(Route.LEADER, False),  # WriteTxnMarkers: a second marker may end the next transaction
    29: Row(Route.ANY, True),  # DescribeAcls
    30: Row(Route.CONTROLLER, True),  # CreateAcls
    31: Row(Route.CONTROLLER, False),  # DeleteAcls
    32: Row(Route.ANY, True),  # DescribeConfigs
    33: Row(Route.ANY, True),  # AlterConfigs
    34: Row(Route.BROKER, True),  # AlterReplicaLogDirs
    35: Row(Route.BROKER, True),  # DescribeLogDirs
    37: Row(Route.CONTROLLER, False),  # CreatePartitions
    38: Row(Route.ANY, False),  # CreateDelegationToken
    39: Row(Route.ANY, True),  # RenewDelegationToken: a second one renews from a later time
    40: Row(Route.ANY, False),  # ExpireDelegationToken: a removed token does not exist
    41: Row(Route.ANY, True),  # DescribeDelegationToken
    42: Row(Route.GROUP, False),  # DeleteGroups
    43: Row(Route.CONTROLLER, False),  # ElectLeaders
    44: Row(Route.ANY, True),  # IncrementalAlterConfigs
    45: Row(Route.CONTROLLER, True),  # AlterPartitionReassignments
    46: Row(Route.CONTROLLER, True),  # ListPartitionReassignments
    47: Row(Route.GROUP, True),  # OffsetDelete
    48: Row(Route.ANY, True),  # DescribeClientQuotas
    49: Row(Route.CONTROLLER, True),  # AlterClientQuotas
    50: Row(Route.CONTROLLER, True),  # DescribeUserScramCredentials
    51: Row(Route.CONTROLLER, False),  # AlterUserScramCredentials
    57: Row(Route.CONTROLLER, False),  # UpdateFeatures
    60: Row(Route.ANY, True),  # DescribeCluster
    61: Row(Route.LEADER, True),  # DescribeProducers
    65: Row(Route.TRANSACTION, True),  # DescribeTransactions
    66: Row(Route.BROKER, True),  # ListTransactions
    69: Row(Route.GROUP, True),  # ConsumerGroupDescribe
    74: Row(Route.ANY, True),  # ListConfigResources
    75: Row(Route.ANY, True),  # DescribeTopicPartitions
    10000: Row(Route.ANY, True),  # ListGroupsPlus
    10001: Row(Route.ANY, False),  # CreateGroup
    10002: Row(Route.GROUP, False),  # DeleteGroup
    10005: Row(Route.GROUP, False),  # RewindConsumer
    10006: Row(Route.LEADER, True),  # ListSegments
    10007: Row(Route.BROKER, True),  # DescribeCoordination
}
