"""The start of a broker of a cluster: opens a session, agrees on an identity with the tree, and recovers the logs.

`startup` has the order of a start. Nothing is created in a tree that may be another cluster's: log directories with an
owner need a tree with the same cluster id.
"""

import asyncio
import logging
from typing import Any

from kafkalite.cluster.metadata_store import MetadataStore, await_completion
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.coordination.tree import Stat
from kafkalite.coordination.znodes.brokers import generated_broker_id
from kafkalite.model import uuid_text
from kafkalite.server.cluster_member import ClusterMember
from kafkalite.server.member_broker import MemberBroker
from kafkalite.server.resources import JOURNAL, BrokerResources, StartError
from kafkalite.storage.dirs.log_directory import Identity

LOGGER = logging.getLogger("kafkalite.server")


async def start_in_cluster(resources: BrokerResources, config: BrokerConfig) -> MemberBroker:
    """Recover the logs, up to the listeners. Raises DirectoryError, OSError, StartError, ZnodeError."""
    if not resources.in_memory and resources.disk.exists(resources.journal):
        raise StartError(
            f"{resources.journal}: the directory belongs to a broker that is alone, and {JOURNAL} has its topics; "
            "unset zookeeper.connect, or choose another directory"
        )
    member = ClusterMember(resources, config)
    try:
        await member.open()
        return await recover(resources, config, member)
    except CoordinationError as error:
        await member.close()
        raise StartError(f"{config.zookeeper_connect}: {error}") from error
    except BaseException:
        await member.close()
        raise


async def recover(resources: BrokerResources, config: BrokerConfig, member: ClusterMember) -> MemberBroker:
    """Agree on the identity, and load the logs; the controller assigns partitions later."""
    store = MetadataStore(member.session, resources.clock)
    identity = await agreed_identity(resources, config, store, member.session)
    member.identify(identity)
    store.register(identity.broker_id)
    config = BrokerConfig(config.static, *await store.broker_configs())
    overrides = await all_topic_configs(member)
    loaded = resources.logs.load(
        lambda topic: config.topic_config(overrides.get(topic, {})), config.num_recovery_threads_per_data_dir
    )
    groups = await store.group_configs()
    return MemberBroker(resources, identity, config, groups, store, member, loaded)


async def agreed_identity(
    resources: BrokerResources, config: BrokerConfig, store: MetadataStore, session: Coordination
) -> Identity:
    """Cluster id and broker id, the same in configuration, log directories and tree. Raises StartError."""
    logs = resources.logs
    known = logs.identity()
    if known is not None:
        await check_tree(known, session)
    await store.prepare(znodes.GROUP_CHANGES)
    cluster_id = await store.cluster_id(uuid_text(resources.random.uuid()))
    broker_id = config.broker_id
    if broker_id < 0:
        broker_id = known.broker_id if known is not None else await generated_id(config, session)
    elif config.broker_id_generation_enable and broker_id > config.reserved_broker_max_id:
        text = f"broker.id is {broker_id}, allowed are 0 to reserved.broker.max.id ({config.reserved_broker_max_id})"
        raise StartError(f"{text}; larger ids are generated ones")
    identity = Identity(cluster_id, broker_id)
    logs.check(identity)
    logs.claim(identity)
    return identity


async def check_tree(known: Identity, session: Coordination) -> None:
    """Refuse an empty tree, to which the log directories cannot belong. Another cluster's is refused later."""
    try:
        await await_completion(lambda then: session.get(znodes.CLUSTER_ID, then))
    except NoNodeError as error:
        raise StartError(
            f"the log directories belong to cluster {known.cluster_id}, but the tree has no {znodes.CLUSTER_ID}: it is "
            "empty or another one. Nothing was changed: restore the tree, or correct zookeeper.connect"
        ) from error


async def generated_id(config: BrokerConfig, session: Coordination) -> int:
    """A broker id that no other broker has."""
    if not config.broker_id_generation_enable:
        raise StartError("broker.id is not set, and broker.id.generation.enable is false: set one of them")
    stat: Stat = await await_completion(lambda then: session.set(znodes.BROKER_SEQUENCE, b"", then))
    return generated_broker_id(stat.version, config.reserved_broker_max_id)


async def all_topic_configs(member: ClusterMember) -> dict[str, Any]:
    """The configs of all topics in the tree."""
    names = (await await_completion(lambda then: member.session.children(znodes.TOPICS, then)))[0]
    read: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    member.read(names, read.set_result)
    found: dict[str, Any] = await read
    return found
