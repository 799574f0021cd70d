"""The administration of a cluster, Apache Kafka or kafkalite: `Admin`, and what its methods take and return.

Names are imported on first use, as in `kafkalite_sdk`.
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite_sdk.admin.acls import Acl as Acl
    from kafkalite_sdk.admin.acls import AclFilter as AclFilter
    from kafkalite_sdk.admin.acls import AclOperation as AclOperation
    from kafkalite_sdk.admin.acls import AclResource as AclResource
    from kafkalite_sdk.admin.acls import Pattern as Pattern
    from kafkalite_sdk.admin.acls import Permission as Permission
    from kafkalite_sdk.admin.admin import Admin as Admin
    from kafkalite_sdk.admin.cluster import ClusterDescription as ClusterDescription
    from kafkalite_sdk.admin.cluster import Features as Features
    from kafkalite_sdk.admin.cluster import LogDirectory as LogDirectory
    from kafkalite_sdk.admin.cluster import Replica as Replica
    from kafkalite_sdk.admin.cluster import ReplicaInfo as ReplicaInfo
    from kafkalite_sdk.admin.cluster import Upgrade as Upgrade
    from kafkalite_sdk.admin.configs import Config as Config
    from kafkalite_sdk.admin.configs import ConfigChange as ConfigChange
    from kafkalite_sdk.admin.configs import ConfigOperation as ConfigOperation
    from kafkalite_sdk.admin.configs import ConfigSource as ConfigSource
    from kafkalite_sdk.admin.configs import Resource as Resource
    from kafkalite_sdk.admin.configs import ResourceType as ResourceType
    from kafkalite_sdk.admin.coordination import Coordination as Coordination
    from kafkalite_sdk.admin.coordination import InvalidTreeNode as InvalidTreeNode
    from kafkalite_sdk.admin.group_types import Committed as Committed
    from kafkalite_sdk.admin.group_types import GroupDescription as GroupDescription
    from kafkalite_sdk.admin.group_types import GroupLag as GroupLag
    from kafkalite_sdk.admin.group_types import GroupListing as GroupListing
    from kafkalite_sdk.admin.group_types import GroupMember as GroupMember
    from kafkalite_sdk.admin.group_types import PartitionLag as PartitionLag
    from kafkalite_sdk.admin.group_types import RemovedMember as RemovedMember
    from kafkalite_sdk.admin.outcomes import Outcomes as Outcomes
    from kafkalite_sdk.admin.partitions import EARLIEST as EARLIEST
    from kafkalite_sdk.admin.partitions import HIGH_WATERMARK as HIGH_WATERMARK
    from kafkalite_sdk.admin.partitions import LATEST as LATEST
    from kafkalite_sdk.admin.partitions import MAX_TIMESTAMP as MAX_TIMESTAMP
    from kafkalite_sdk.admin.partitions import Election as Election
    from kafkalite_sdk.admin.quotas import QuotaEntity as QuotaEntity
    from kafkalite_sdk.admin.tokens import DelegationToken as DelegationToken
    from kafkalite_sdk.admin.topic_types import CreatedTopic as CreatedTopic
    from kafkalite_sdk.admin.topic_types import NewTopic as NewTopic
    from kafkalite_sdk.admin.topic_types import PartitionDescription as PartitionDescription
    from kafkalite_sdk.admin.topic_types import ProducerState as ProducerState
    from kafkalite_sdk.admin.topic_types import Reassignment as Reassignment
    from kafkalite_sdk.admin.topic_types import TopicDescription as TopicDescription
    from kafkalite_sdk.admin.transaction_types import OpenTransaction as OpenTransaction
    from kafkalite_sdk.admin.transaction_types import ProducerEpoch as ProducerEpoch
    from kafkalite_sdk.admin.transaction_types import TransactionDescription as TransactionDescription
    from kafkalite_sdk.admin.transaction_types import TransactionListing as TransactionListing
    from kafkalite_sdk.admin.users import NewCredential as NewCredential
    from kafkalite_sdk.admin.users import ScramMechanism as ScramMechanism
    from kafkalite_sdk.admin.users import UserMechanism as UserMechanism
    from kafkalite_sdk.values import ListedOffset as ListedOffset

_NAMES = {
    "acls": ("Acl", "AclFilter", "AclOperation", "AclResource", "Pattern", "Permission"),
    "admin": ("Admin",),
    "cluster": (
        "ClusterDescription",
        "Features",
        "LogDirectory",
        "Replica",
        "ReplicaInfo",
        "Upgrade",
    ),
    "configs": ("Config", "ConfigChange", "ConfigOperation", "ConfigSource", "Resource", "ResourceType"),
    "coordination": ("Coordination", "InvalidTreeNode"),
    "group_types": (
        *("Committed", "GroupDescription", "GroupLag", "GroupListing"),
        *("GroupMember", "PartitionLag", "RemovedMember"),
    ),
    "outcomes": ("Outcomes",),
    "partitions": ("EARLIEST", "HIGH_WATERMARK", "LATEST", "MAX_TIMESTAMP", "Election", "ListedOffset"),
    "quotas": ("QuotaEntity",),
    "tokens": ("DelegationToken",),
    "topic_types": (
        *("CreatedTopic", "NewTopic", "PartitionDescription", "ProducerState"),
        *("Reassignment", "TopicDescription"),
    ),
    "transaction_types": ("OpenTransaction", "ProducerEpoch", "TransactionDescription", "TransactionListing"),
    "users": ("NewCredential", "ScramMechanism", "UserMechanism"),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [*_MODULES]


__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
