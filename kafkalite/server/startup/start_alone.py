"""The start of a broker that is alone: opens the embedded tree, agrees on an identity with it, and recovers the logs.

`startup` has the order of a start. The tree is in the first log directory, so both must belong to the same cluster.
"""

import logging
import os
from functools import partial
from typing import NamedTuple

from kafkalite.cluster.metadata.image import ClusterTables, FinalizedFeatures
from kafkalite.cluster.metadata.live_brokers import BrokerImage, LiveBrokers
from kafkalite.cluster.metadata.store import MetadataStore, await_completion
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.stored import read_broker_config
from kafkalite.coordination.embedded import EmbeddedSession
from kafkalite.coordination.tree import Tree
from kafkalite.coordination.znodes import CLUSTER_ID, FEATURES, decode_cluster_id
from kafkalite.model import uuid_text
from kafkalite.server.hosting.hosted_partitions import HostedPartitions
from kafkalite.server.process.resources import ADOPTED, ADOPTING, JOURNAL, BrokerResources, StartError
from kafkalite.server.running.alone_broker import AloneBroker
from kafkalite.server.running.older_tree import OlderTree, largest_id, older_change
from kafkalite.server.startup.epoch_bump import raise_leader_epochs
from kafkalite.storage import checkpoints
from kafkalite.storage.dirs.log_directory import FORMAT, Identity

LOGGER = logging.getLogger("kafkalite.server")
FIRST_BROKER = 1  # the default of broker.id on the embedded tree, which has one broker


class Metadata(NamedTuple):
    """The cluster metadata as a start opens it; `config` has the dynamic configs, `older` whether the journal is an
    older copy.
    """

    session: EmbeddedSession
    store: MetadataStore
    identity: Identity
    config: BrokerConfig
    group_configs: dict[str, dict[str, str]]
    older: OlderTree


async def open_metadata(resources: BrokerResources, config: BrokerConfig) -> Metadata:
    """Open the cluster metadata, and agree on one cluster id and one broker id for it, configuration and directories.

    Raises DirectoryError, JournalError, OSError, StartError, ZnodeError.
    """
    logs, known = resources.logs, resources.logs.identity()
    first = logs.directories()[0]
    if not logs.is_online(first):
        raise StartError(f"{first}: cannot be used, but contains the journal of the cluster metadata")
    if known is not None and not resources.in_memory and not resources.disk.exists(resources.journal):
        raise StartError(without_journal(resources, config.log_dirs[0], known))
    broker_id = config.broker_id
    if broker_id < 0:
        broker_id = FIRST_BROKER if known is None else known.broker_id
    if known is not None:
        logs.check(Identity(known.cluster_id, broker_id))
    older = OlderTree(resources.journal)
    service = resources.open_coordination(lambda tree: check_tree(resources, tree, broker_id, older))
    session = service.connect(on_lost=resources.coordination_lost)
    store = MetadataStore(session, resources.clock)
    await store.prepare()
    identity = Identity(await store.cluster_id(uuid_text(resources.random.uuid())), broker_id)
    logs.claim(identity)
    store.register(broker_id)
    stored = read_broker_config(config, *await store.broker_configs())
    resources.config_problems.report_broker(stored)
    return Metadata(session, store, identity, stored.config, await store.group_configs(), older)


def without_journal(resources: BrokerResources, directory: str, owner: Identity) -> str:
    """Return the error text of a log directory that has an owner and no journal."""
    if resources.disk.exists(os.path.join(directory, ADOPTING)):
        cure = "`kafkalite cluster adopt` was interrupted: repeat it"
    elif resources.disk.exists(os.path.join(directory, ADOPTED)):
        cure = "a cluster has adopted it: set zookeeper.connect or kafkalite.coordination.directory"
    elif resources.disk.exists(os.path.join(directory, FORMAT)):
        cure = (
            "choose another directory, restore the journal, or set zookeeper.connect or "
            "kafkalite.coordination.directory if the broker was in a cluster"
        )
    else:  # kafkalite was never here
        cure = f"choose another one; `kafkalite log adopt {directory} --data DIR` takes topics of Apache Kafka over"
    return f"{directory}: belongs to cluster {owner.cluster_id} and has no {JOURNAL}; {cure}"


def check_tree(resources: BrokerResources, tree: Tree, broker_id: int, older: OlderTree) -> None:
    """Check that journal and log directories belong to the same cluster, and note the age of the journal.

    Raises DirectoryError, ZnodeError.
    """
    named = tree.find(CLUSTER_ID)
    if named is not None:
        resources.logs.check(Identity(decode_cluster_id(named.data), broker_id))
    noted = checkpoints.read_broker_epoch(resources.disk, os.path.dirname(resources.journal))
    older.last_change = older_change(tree.zxid, noted)


async def recover(resources: BrokerResources, metadata: Metadata) -> AloneBroker:
    """Recover the logs and host the partitions. Raises DirectoryError, CoordinationError."""
    config, store, logs = metadata.config, metadata.store, resources.logs
    topics = await store.topics()
    configs = {topic.name: config.stored_topic_config(topic.configs).config for topic in topics}
    resources.finish_interrupted_moves()
    loaded = logs.load(
        lambda topic: configs.get(topic, config.topic_defaults), config.num_recovery_threads_per_data_dir
    )
    later, older = metadata.session.multi_later, metadata.older
    older.ids = await store.raise_producer_ids(largest_id(resources.disk, loaded), later=later)
    topics, older.epochs = await raise_leader_epochs(store, topics, logs, loaded, later)
    older.report()
    identity = metadata.identity
    brokers = LiveBrokers((BrokerImage(identity.broker_id, rack=config.broker_rack),))
    tables = ClusterTables(identity.cluster_id, identity.broker_id, brokers, topics)
    await read_features(metadata.session, tables.features)
    hosting = HostedPartitions(
        config, resources.clock, resources.offload, resources.slicer, resources.replicas, logs, store
    )
    hosting.load(topics, store.noted_directory, await store.load_notices())
    return AloneBroker(resources, identity, config, metadata.group_configs, store, tables, hosting, loaded)


async def read_features(session: EmbeddedSession, features: FinalizedFeatures) -> None:
    """Read the finalized features. Raises CoordinationError."""
    data, stat = await await_completion(partial(session.get, FEATURES))
    if not data:  # the levels are the highest ones
        features.epoch = stat.version
        return
    from kafkalite.cluster.finalized_features import apply_levels

    apply_levels(features, data, stat)
