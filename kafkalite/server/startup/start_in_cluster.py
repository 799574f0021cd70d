"""The start of a broker of a cluster: opens a session, agrees on an identity with the tree, and recovers the logs.

`startup` has the order of a start. Nothing is created in a tree that may be another cluster's: log directories with an
owner need a tree with the same cluster id.
"""

import asyncio
import logging
import os
from functools import partial
from typing import NamedTuple

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, await_outcome
from kafkalite.cluster.configs.reads import Texts, read_configs, readable
from kafkalite.cluster.generated_broker_ids import generate
from kafkalite.cluster.metadata.store import MetadataStore, await_completion
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.stored import read_broker_config
from kafkalite.config.topic import TopicConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.model import uuid_text
from kafkalite.server.hosting.missing_logs import mark_incomplete, mark_new
from kafkalite.server.hosting.returned_strays import find, find_assigned, return_strays
from kafkalite.server.process.resources import ADOPTING, JOURNAL, BrokerResources, StartError
from kafkalite.server.running.cluster_participant import ClusterParticipant
from kafkalite.server.running.registered_broker import RegisteredBroker
from kafkalite.storage.dirs.log_directory import Identity
from kafkalite.storage.dirs.stray_partitions import Stray

LOGGER = logging.getLogger("kafkalite.server")


async def start_in_cluster(resources: BrokerResources, config: BrokerConfig) -> RegisteredBroker:
    """Recover the logs, up to the listeners. Raises DirectoryError, OSError, StartError, ZnodeError."""
    if not resources.in_memory:
        check_journal(resources, config)
    participant = ClusterParticipant(resources, config)
    try:
        await participant.open()
        return await recover(resources, config, participant)
    except CoordinationError as error:
        await participant.close()
        raise participant.refusal(error) from error
    except BaseException:
        await participant.close()
        raise


def check_journal(resources: BrokerResources, config: BrokerConfig) -> None:
    """Refuse a log directory whose topics are in its journal. Raises StartError."""
    if resources.disk.exists(resources.journal):
        raise StartError(
            f"{resources.journal}: the directory belongs to a broker that is alone, and {JOURNAL} has its topics; "
            f"unset {key_of(config)}, choose another directory, or run `kafkalite cluster adopt`"
        )
    adopting = os.path.join(config.log_dirs[0], ADOPTING)
    if resources.disk.exists(adopting):
        raise StartError(f"{adopting}: `kafkalite cluster adopt` was interrupted: repeat it")


def key_of(config: BrokerConfig) -> str:
    """The setting that names the coordination service."""
    return "kafkalite.coordination.directory" if config.zookeeper_connect is None else "zookeeper.connect"


async def recover(
    resources: BrokerResources, config: BrokerConfig, participant: ClusterParticipant
) -> RegisteredBroker:
    """Agree on the identity, and load the logs; the controller assigns partitions later.

    The load may take longer than an outage of the service, so everything is read before it.
    """
    store = MetadataStore(participant.session, resources.clock)
    found = await participant.retry(partial(reading, resources, config, participant, store))
    participant.identify(found.identity)
    stored = read_broker_config(config, *found.broker_configs)
    resources.config_problems.report_broker(stored)
    config = stored.config

    def config_of(topic: str) -> TopicConfig:
        return config.stored_topic_config(found.topics.get(topic, {})).config

    return_strays(resources.disk, found.strays, config_of)
    participant.counters.read_marks(resources.disk, resources.logs.online())
    resources.finish_interrupted_moves()
    mark_incomplete(resources.logs)
    threads = config.num_recovery_threads_per_data_dir
    # The recovery may be long. Meanwhile, this process may serve the tree to brokers that recover, too.
    recovered = await await_outcome(partial(resources.logs.load_in_job, resources.offload, config_of, threads))
    loaded = resources.logs.add_loaded(recovered.result())
    participant.counters.loaded(resources.disk, loaded)
    await participant.retry(partial(raise_counters, participant))
    return RegisteredBroker(resources, found.identity, config, found.groups, store, participant, loaded)


class StartState(NamedTuple):
    """What a start reads from the tree: dynamic configs of all brokers and of this one, of topics and of groups; and
    the strays that it assigns to this broker.
    """

    identity: Identity
    broker_configs: tuple[Texts | None, Texts | None]
    topics: dict[str, Texts | None]
    groups: dict[str, dict[str, str]]
    strays: list[Stray]


async def reading(
    resources: BrokerResources, config: BrokerConfig, participant: ClusterParticipant, store: MetadataStore
) -> StartState:
    """Read the tree. The changes of a start (nodes that must exist, a generated broker id) can be repeated."""
    identity = await agreed_identity(resources, config, store, participant.session)
    store.register(identity.broker_id)
    topics = await all_topic_configs(participant.session)
    strays = await find_assigned(find(resources.disk, resources.logs.online()), identity.broker_id, participant.session)
    return StartState(identity, await store.broker_configs(), topics, await store.group_configs(), strays)


async def raise_counters(participant: ClusterParticipant) -> None:
    """Raise the counters of the tree before a listener is opened."""
    session = participant.session.session
    assert session is not None, "a start has a session, perhaps a lost one"
    await await_completion(partial(participant.counters.raise_in, session, participant.first_zxid))


async def agreed_identity(
    resources: BrokerResources, config: BrokerConfig, store: MetadataStore, session: Coordination
) -> Identity:
    """Cluster id and broker id, the same in configuration, log directories and tree. Raises StartError."""
    logs = resources.logs
    known = logs.identity()
    await check_tree(known, session, key_of(config))
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
    mark_new(logs)
    logs.claim(identity)
    return identity


async def check_tree(known: Identity | None, session: Coordination, key: str) -> None:
    """Refuse the tree of another cluster, and one without a cluster id if the log directories or topics in it have a
    cluster. Nothing is written.

    Arguments:
        known: the owner of the log directories, None = they are new.
        session: with the coordination service.
        key: the setting that names the tree.

    Raises StartError, CoordinationError.
    """
    cure = f"Nothing was changed: restore the tree, or correct {key}"
    found = await stored_cluster_id(session)
    if found is not None:
        if known is not None and known.cluster_id != found:
            text = f"the tree belongs to cluster {found}, the log directories to {known.cluster_id}"
            raise StartError(f"{text}. {cure}")
        return
    if known is not None:
        text = (
            f"the log directories belong to cluster {known.cluster_id}, but the tree has no {znodes.CLUSTER_ID}: it is"
        )
        raise StartError(f"{text} empty or another one. {cure}")
    try:
        topics = (await await_completion(partial(session.children, znodes.TOPICS)))[0]
    except NoNodeError:
        return
    if topics:
        text = (
            f"the tree has topics, but no {znodes.CLUSTER_ID}: `kafkalite cluster adopt` was interrupted, or a part is"
        )
        raise StartError(f"{text} lost. {cure}")


async def stored_cluster_id(session: Coordination) -> str | None:
    """The cluster id in the tree, None if it has none. Raises CoordinationError, ZnodeError."""
    try:
        data, _stat = await await_completion(partial(session.get, znodes.CLUSTER_ID))
    except NoNodeError:
        return None
    return znodes.decode_cluster_id(data)


async def generated_id(config: BrokerConfig, session: Coordination) -> int:
    """A broker id that no other broker has."""
    if not config.broker_id_generation_enable:
        raise StartError("broker.id is not set, and broker.id.generation.enable is false: set one of them")
    return await generate(session, config.reserved_broker_max_id)


async def all_topic_configs(session: Coordination) -> dict[str, Texts | None]:
    """The configs of all topics in the tree; None: they cannot be read."""
    names = (await await_completion(lambda then: session.children(znodes.TOPICS, then)))[0]
    paths = {name: znodes.topic_config_path(name) for name in names}
    read: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    gather([partial(read_configs, session, path) for path in paths.values()], read.set_result)
    return {name: readable(outcome, paths[name]) for name, outcome in zip(names, await read, strict=True)}
