"""Opens the tree for a command, and a client of the brokers that are registered there."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Committed
from kafkalite_sdk.zk.bootstrap import addresses_of
from kafkalite_sdk.zk.group_changes import GroupChangedError, RegisteredConsumersError
from kafkalite_sdk.zk.groups import ZooKeeperGroup, ZooKeeperGroups
from kafkalite_sdk.zk.offsets.offsets_topic import has_offsets_topic
from kafkalite_sdk.zk.session import opened_session

from kafkalite.cli.client_options import DEFAULT_BOOTSTRAP, Cluster, is_default, parse_address
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail
from kafkalite.cli.group.zookeeper.options import Tree
from kafkalite.cli.zk_reader import IN_CONFIG, access_of
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.coordination.znodes import BROKER_IDS
from kafkalite.coordination.znodes.consumers import CONSUMERS, group_path
from kafkalite.coordination.zookeeper.access import open_acl
from kafkalite.coordination.zookeeper.access_files import explain
from kafkalite.errors import KafkaConnectionError, KafkaError, KafkaErrorCode
from kafkalite.model import TopicPartition

TIMEOUT_S = 10.0  # how long the servers are tried, and each step takes at most
ANSWER_S = 15.0  # for the answers of brokers
COORDINATOR_S = 5.0  # for those of a coordinator: what ZooKeeper has is shown without them
LATEST = -1
PLAINTEXT = "PLAINTEXT"
UNKNOWN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the topic is deleted, which is no failure of the command


@asynccontextmanager
async def open_groups(tree: Tree) -> AsyncIterator[ZooKeeperGroups]:
    """Open a session, and close it at the end. Ends the command with the reason if anything in it fails."""
    # Consumers of any identity write below /consumers (ZkData.defaultAcls), so these nodes are open, too.
    access = access_of(tree.config)._replace(acl=open_acl)
    try:
        async with opened_session(tree.servers, TIMEOUT_S, access=access) as session:
            yield ZooKeeperGroups(session, TIMEOUT_S)
    except KafkaError:
        raise
    except RegisteredConsumersError as error:
        fail(f"{error} has registered consumers: stop them first; `kafkalite group describe --zookeeper` shows them")
    except GroupChangedError as error:
        fail(f"{error} was changed by another session meanwhile; repeat the command")
    except TimeoutError:
        fail(f"{tree.servers}: no answer within {TIMEOUT_S:g} s; is ZooKeeper there?")
    except NoNodeError as error:
        fail(missing_node(tree, error))
    except CoordinationError as error:
        fail(f"{tree.servers}: {explain(error, access.identity_settings, IN_CONFIG)}")
    except ValueError as error:
        fail(str(error))


def missing_node(tree: Tree, error: NoNodeError) -> str:
    """The text for a node that does not exist: the next step depends on the node."""
    if error.path == CONSUMERS:
        return f"{tree.servers}: {CONSUMERS} does not exist, so no cluster or consumer has used this path; check it"
    group = error.path.removeprefix(f"{CONSUMERS}/")
    if error.path == group_path(group) and "/" not in group:
        listed = f"`kafkalite group list --zookeeper {tree.servers}` lists the groups"
        return f"{group}: ZooKeeper has no such group, {error.path} does not exist; {listed}"
    return f"{tree.servers}: {error}"


@asynccontextmanager
async def connect_brokers(groups: ZooKeeperGroups, cluster: Cluster) -> AsyncIterator[Admin]:
    """Open the administration of the brokers in `--bootstrap-server`, else of those that the tree has.

    Raises KafkaError: no broker is registered, or none answers.
    """
    given = not is_default("bootstrap") or cluster.addresses != (parse_address(DEFAULT_BOOTSTRAP),)
    if not given:
        cluster = replace(cluster, addresses=await registered_addresses(groups, cluster))
    async with connect(cluster) as admin:
        yield admin


async def registered_addresses(groups: ZooKeeperGroups, cluster: Cluster) -> tuple[tuple[str, int], ...]:
    """The addresses of the registered brokers with the security protocol of the client. Raises KafkaConnectionError."""
    protocol = str(cluster.settings.get("security_protocol", PLAINTEXT)).upper()
    found = await groups.brokers()
    usable = addresses_of(found.registrations.values(), protocol)
    if not usable:
        invalid = "".join(f"; {path}: {reason}" for path, reason in found.problems.items())
        known = f"no broker with {protocol}" if found.registrations else "no broker"
        raise KafkaConnectionError(f"{BROKER_IDS} has {known}{invalid}; name one with --bootstrap-server")
    return usable


class BrokerOffsets(NamedTuple):
    """What the brokers know of groups.

    Attributes:
        committed: offsets by group.
        ends: log end offsets.
        errors: why something is unknown, by its name.
    """

    committed: Mapping[str, Mapping[TopicPartition, Committed]]
    ends: Mapping[TopicPartition, int]
    errors: dict[str, KafkaError]


async def read_brokers(groups: ZooKeeperGroups, cluster: Cluster, found: list[ZooKeeperGroup]) -> BrokerOffsets:
    """Read the broker's offsets of groups, and the log ends of their partitions. An error is a part of the result."""
    if not found:
        return BrokerOffsets({}, {}, {})
    try:
        async with connect_brokers(groups, cluster) as admin:
            return await _read(groups, admin, found)
    except KafkaError as error:
        return BrokerOffsets({}, {}, {"all partitions": error})


async def _read(groups: ZooKeeperGroups, admin: Admin, found: list[ZooKeeperGroup]) -> BrokerOffsets:
    names = [each.group for each in found] if await has_offsets_topic(groups, admin, ANSWER_S) else []
    committed = await admin.group_offsets.list(*names, timeout=COORDINATOR_S)
    wanted = {partition for each in found for partition in (*each.offsets, *each.owners)}
    wanted |= {partition for offsets in committed.results.values() for partition in offsets}
    ends = await admin.partitions.offsets(dict.fromkeys(sorted(wanted), LATEST), timeout=ANSWER_S)
    errors = {str(each): error for each, error in ends.errors.items() if error.code != UNKNOWN}
    return BrokerOffsets(
        committed.results, {each: one.offset for each, one in ends.results.items()}, {**committed.errors, **errors}
    )
