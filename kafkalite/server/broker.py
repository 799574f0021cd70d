"""The broker: builds all parts, in the order in which they need each other, and takes them down in reverse.

Order of start: directories locked, coordination opened, identity agreed, logs recovered, partitions hosted,
listeners opened. Order of stop: listeners drained, partitions flushed, logs closed with a clean mark, coordination
closed, locks released.

A broker without a data directory keeps its files in a temporary one and its coordination in memory: for tests.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from kafkalite._speedups.net.framing import Connection
from kafkalite._speedups.net.heartbeats import Heartbeats
from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import LoopClock, Outcome, Random, SystemRandom, ThreadOffload, outcome_of
from kafkalite.cluster.image import UNASSIGNED_ID, ClusterImage, ClusterTables, TopicImage
from kafkalite.cluster.internal_topics import OFFSETS
from kafkalite.cluster.metadata_store import MetadataStore
from kafkalite.cluster.producer_ids import ProducerIds
from kafkalite.cluster.read_ahead import ReadAhead
from kafkalite.cluster.replicas import Replicas
from kafkalite.cluster.topics import Refusal, TopicManager, applying
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.dynamic import not_in_force
from kafkalite.config.keys import SettingValue, setting_texts
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.tree import Tree
from kafkalite.coordination.znodes import CLUSTER_ID, ZnodeError, decode_cluster_id
from kafkalite.errors import KafkaErrorCode
from kafkalite.gc_pause import PAUSE
from kafkalite.metrics import Registry
from kafkalite.model import Endpoint, Node, uuid_text
from kafkalite.server.api import ROWS
from kafkalite.server.config_resources import ConfigResources
from kafkalite.server.dispatch import Dispatcher
from kafkalite.server.epoch_bump import raise_leader_epochs
from kafkalite.server.hosted_partitions import HostedPartitions
from kafkalite.server.journal_check import older_journal
from kafkalite.server.listeners import Listeners
from kafkalite.server.no_transactions import TransactionalClients
from kafkalite.server.partition_description import PartitionDescriptions
from kafkalite.server.rate_limited_log import RateLimitedLog
from kafkalite.server.service import BrokerService
from kafkalite.slicing import Slicer
from kafkalite.state.fetch_sessions import FetchSessions
from kafkalite.storage.compaction.cleaner import CleanerConfig, LogCleaner
from kafkalite.storage.compaction.cleaning_jobs import be_nice
from kafkalite.storage.dirs.log_directory import FORMAT, DirectoryError, Identity
from kafkalite.storage.dirs.temporary import TemporaryDisk
from kafkalite.storage.flush.fsync_batch import BATCHES_MAX, syncer_for
from kafkalite.storage.log.log import Log
from kafkalite.storage.manager import LogManager

if TYPE_CHECKING:
    from kafkalite.coordinators.group.coordinator import GroupCoordinator
    from kafkalite.coordinators.group.service import GroupService

LOGGER = logging.getLogger("kafkalite.server")
SESSION_ID_MAX = 2**31 - 1
JOURNAL = "kafkalite.journal"
FIRST_BROKER = 1  # the id on the embedded tree, where there is one broker, unless broker.id says another
EMBEDDED = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class StartError(Exception):
    """The broker cannot start; the text says what is wrong and what to do."""


class Broker:
    """One broker in one event loop: `async with Broker(...) as broker:` or `start` and `stop`. Each starts once;
    another `Broker` with the same directory goes on where it ended.

    Arguments:
        data_dir: where its files are kept; None = a temporary directory that is removed at the end.
        settings: configs under Kafka's names, such as {"num.partitions": 3}; they win over `data_dir`'s defaults.
        config: a finished configuration, instead of the two above.

    Attributes:
        on_failed: called with one line when nothing can be served any more: the last log directory went offline, or the
            journal of the cluster's state failed. Until it is stopped, clients hear KAFKA_STORAGE_ERROR.

    Raises (from `start`): ConfigError, OSError, StartError.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        config: BrokerConfig | None = None,
    ) -> None:
        self._temporary = temporary_path() if data_dir is None and config is None else None
        directory = self._temporary or data_dir
        self.config = config or BrokerConfig({**EMBEDDED, "log.dirs": str(directory), **setting_texts(settings or {})})
        self.random: Random = SystemRandom()
        self.disk = Disk() if self._temporary is None else TemporaryDisk()
        self.replicas = Replicas()
        self.metrics = Registry()
        self.on_failed: Callable[[str], None] | None = None
        self._service: EmbeddedCoordination | None = None

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener."""
        endpoint = self.addresses[0]
        return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"

    @property
    def addresses(self) -> list[Endpoint]:
        """Where each listener accepts."""
        if not hasattr(self, "listening"):
            raise RuntimeError("the broker is not started: use `async with broker:` or `start()`")
        return self.listening.addresses

    @property
    def partitions_count(self) -> int:
        """How many partitions are hosted."""
        return sum(len(topic.partitions) for topic in self.replicas)

    async def start(self, inherited: Sequence[tuple[str, socket.socket]] = ()) -> None:
        """Recover what is on the disk and accept connections; `inherited`: listening sockets of a service manager."""
        loop = asyncio.get_running_loop()
        if hasattr(self, "logs"):  # partitions, settings and numbers would be those of before
            raise RuntimeError(
                "a broker starts only once: create another `Broker`, with the same directory to keep its data"
            )
        for name, near in self.config.unknown():
            origin = f" (in {self.config.origins[name]})" if name in self.config.origins else ""
            LOGGER.warning("unknown key %s%s is ignored%s", name, origin, f": did you mean {near}?" if near else "")
        if self._temporary is not None:
            os.mkdir(self._temporary, 0o700)
        self.clock = LoopClock(loop, self._raised)
        self.slicer = Slicer(self.clock, self._raised)
        self.offload = ThreadOffload(loop, raised=self._raised)
        # Syncs that acknowledgements wait for: no other job keeps them waiting, nor one log directory the others.
        jobs = ThreadOffload(loop, BATCHES_MAX * len(self.config.log_dirs), raised=self._raised, name="kafkalite-sync")
        self.syncs = syncer_for(self.disk, self.config.log_dirs, loop, jobs, self._raised)
        # Thousands of partitions take seconds to create or delete: no other job waits behind them.
        self._creations = ThreadOffload(loop, len(self.config.log_dirs), self._raised, name="kafkalite-create")
        self._removals = ThreadOffload(loop, 1, self._raised, name="kafkalite-remove", prepare=be_nice)
        self._log = RateLimitedLog(LOGGER, self.clock)
        self.logs = LogManager(
            self.disk, self.config.log_dirs, self.clock, self.offload, self.random,
            syncs=self.syncs, creations=self._creations, removals=self._removals, on_offline=self._logs_offline,
        )  # fmt: skip
        self.replicas.flusher = self.logs.flusher
        self.read_ahead = ReadAhead(self.offload, holds=self.logs.holds)
        try:
            self.logs.lock()
            await self._open_store()
            await self._agree_on_identity()
            PAUSE.begin()
            try:
                await self._recover()
            finally:
                PAUSE.end()
            self._serve(loop)
            self._coordinate(OFFSETS.name)
            await self._listen(loop, inherited)
            self.store.finish_deletions()
        except (DirectoryError, JournalError, ZnodeError) as error:
            self._release()
            raise StartError(str(error)) from error
        except BaseException:
            self._release()
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """Drain the listeners for at most `grace_s` seconds, then leave everything as a clean start wants it.

        Whatever is raised on the way, the directories are free afterwards. A broker that never started has nothing to
        stop.
        """
        if not hasattr(self, "logs"):
            return
        try:
            await self._end(grace_s)
        finally:
            self._release()

    async def _end(self, grace_s: float) -> None:
        self.replicas.complete_delayed_fetches()  # their clients would delay the drain
        self._ending = True
        if self._coordinates:
            self.group_coordinator.close()  # and so are parked joins
        await self.listening.close(grace_s)
        self.replicas.write_pending()
        self.hosting.close()
        self._creations.close()
        self.logs.finish_flushes()
        self.syncs.close()
        if self._service is not None and self._service.failure is None:
            await self._leave_store()
        self._removals.close()
        self.offload.close()  # whatever is under way ends before the logs do
        self._close_cleaner()
        service = self._service
        self.logs.close(-1 if service is None or service.failure is not None else service.durable_zxid)

    async def _leave_store(self) -> None:
        try:
            await self.store.close()
        except CoordinationError as error:  # a full disk, say: no reason to leave the logs unclosed
            LOGGER.warning("cannot close the session, the next start closes it: %s", error)

    # Steps of the start.

    async def _open_store(self) -> None:
        self._known = self.logs.identity()
        first = self.logs.directories()[0]
        if not self.logs.is_online(first):
            raise StartError(f"{first}: cannot be used, but contains the journal of the cluster metadata")
        in_memory = self._temporary is not None
        path = os.path.join(self.config.log_dirs[0], JOURNAL)
        if self._known is not None and not in_memory and not self.disk.exists(path):
            raise StartError(self._no_journal(self.config.log_dirs[0], self._known))
        known_id = FIRST_BROKER if self._known is None else self._known.broker_id
        self.broker_id = known_id if self.config.broker_id < 0 else self.config.broker_id
        if self._known is not None:
            self.logs.check(Identity(self._known.cluster_id, self.broker_id))
        if in_memory:
            self._service = EmbeddedCoordination(self.clock)
        else:
            self._service = EmbeddedCoordination.open(self.disk, path, self.clock, self.offload, self._check_tree)
        self._session = self._service.connect(on_lost=self._coordination_lost)
        self.store = MetadataStore(self._session, self.clock)
        await self.store.prepare()

    def _no_journal(self, directory: str, owner: Identity) -> str:
        if self.disk.exists(os.path.join(directory, FORMAT)):
            cure = "choose another directory, or bring the journal back"
        else:  # kafkalite was never here
            cure = f"choose another one; `kafkalite log adopt {directory} --data DIR` takes topics of Apache Kafka over"
        return f"{directory}: belongs to cluster {owner.cluster_id} and has no {JOURNAL}; {cure}"

    def _check_tree(self, tree: Tree) -> None:
        """See that the directories are of the cluster that the journal speaks of."""
        named = tree.find(CLUSTER_ID)
        if named is not None:
            self.logs.check(Identity(decode_cluster_id(named.data), self.broker_id))
        for line in older_journal(self.disk, os.path.join(self.config.log_dirs[0], JOURNAL), tree.zxid):
            LOGGER.warning("%s", line)

    async def _agree_on_identity(self) -> None:
        """One cluster id and one broker id for coordination, configuration and directories."""
        self.cluster_id = await self.store.cluster_id(uuid_text(self.random.uuid()))
        self.logs.claim(Identity(self.cluster_id, self.broker_id))
        self.store.register(self.broker_id)
        dynamic_default, dynamic = await self.store.broker_configs()
        self.config = BrokerConfig(self.config.static, dynamic_default, dynamic)
        self.group_configs = await self.store.group_configs()

    async def _recover(self) -> None:
        topics = await self.store.topics()
        configs = {topic.name: self.config.topic_config(topic.configs) for topic in topics}
        self.loaded = self.logs.load(
            lambda topic: configs.get(topic, self.config.topic_defaults), self.config.num_recovery_threads_per_data_dir
        )
        topics = await raise_leader_epochs(self.store, topics, self.logs, self.loaded, self._session.multi_later)
        node = Node(self.broker_id, "", 0, self.config.broker_rack)
        self.tables = ClusterTables(self.cluster_id, self.broker_id, (node,), topics)
        self.hosting = HostedPartitions(
            self.config, self.clock, self.offload, self.slicer, self.replicas, self.logs, self.store
        )
        self.hosting.load(topics, self.store.noted_directory, await self.store.load_notices())

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self.topics = TopicManager(self, self.store)
        self.configs = ConfigResources(self)
        self.descriptions = PartitionDescriptions()
        self.producer_ids = ProducerIds(self.store.take_producer_ids)
        self.transactional_clients = TransactionalClients()
        self._ending = False
        self.fetch_sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots, lambda: 1 + self.random.below(SESSION_ID_MAX)
        )
        self.dispatcher = Dispatcher(self, ROWS, self._log)
        self.heartbeats = Heartbeats()
        self.metrics.gauge(
            "kafkalite_duplicate_batches",
            "Repeated batches of idempotent producers that were answered with their first offset.",
            lambda: self.logs.duplicates,
        )
        self.logs.cleaner = self._cleaner(loop)
        if self.logs.cleaner is not None:
            self.logs.cleaner.start(self._high_watermark)
        self.logs.upkeep.start(
            self._high_watermark,
            checkpoint_ms=self.config.log_flush_offset_checkpoint_interval_ms,
            starts_ms=self.config.log_flush_start_offset_checkpoint_interval_ms,
            flush_check_ms=self.config.log_flush_scheduler_interval_ms,
            retention_ms=self.config.log_retention_check_interval_ms,
            initial_ms=self.config.log_initial_task_delay_ms,
            jump_pause_ms=self.config.kafkalite_retention_clock_jump_pause_ms,
            producer_check_ms=self.config.producer_id_expiration_check_interval_ms,
            producer_silent_ms=self.config.producer_id_expiration_ms,
        )

    async def _listen(self, loop: asyncio.AbstractEventLoop, inherited: Sequence[tuple[str, socket.socket]]) -> None:
        """Accept connections at every address, or at none."""
        self.listening = Listeners(loop, BrokerService(self.dispatcher, self.replicas, self.heartbeats), self.config)
        try:
            self.listening.open(list(inherited))
        except BaseException:
            await self.listening.close(0)
            raise

    def _cleaner(self, loop: asyncio.AbstractEventLoop) -> LogCleaner | None:
        """The cleaner, with threads of its own."""
        config = self.config
        if not config.log_cleaner_enable or config.log_cleaner_threads < 1:
            return None
        self._cleaner_offload = ThreadOffload(loop, config.log_cleaner_threads, self._raised)
        wanted = CleanerConfig(
            config.log_cleaner_threads,
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_backoff_ms,
            config.log_cleaner_io_max_bytes_per_second,
        )
        return LogCleaner(self.logs, self.clock, self._cleaner_offload, self.random, wanted)

    def _close_cleaner(self) -> None:
        if self.logs.cleaner is not None:
            self.logs.cleaner.close()
            self._cleaner_offload.close()
            self.logs.cleaner = None

    def _release(self) -> None:
        """Let go of what a start took, in reverse; also the end of a clean stop."""
        self._close_cleaner()
        self.syncs.close()
        self._creations.close()
        self._removals.close()
        self.offload.close()
        self.slicer.close()
        self.clock.close()
        if self._service is not None:
            self._service.close()
        self.logs.unlock()
        if self._temporary is not None:
            remove_directory(self._temporary)

    def _high_watermark(self, log: Log) -> int:
        partition = self.replicas.partition(log.topic, UNASSIGNED_ID, log.partition, by_id=False)
        return log.log_start_offset if isinstance(partition, int) else partition.high_watermark

    def _raised(self, callback: object, error: BaseException) -> None:
        self._log.raised(callback, error)

    def _coordination_lost(self) -> None:
        """The journal could not be synced: what the cluster is can no longer be kept, nor believed (law 11)."""
        text = f"the journal of the cluster's state failed: {self._service and self._service.failure!r}"
        LOGGER.critical("%s; all log directories are offline: restart the broker", text)
        if self.on_failed is not None:
            self.on_failed(text)
        for path in self.logs.directories():
            self.logs.take_offline(path, OSError(text))

    def _logs_offline(self, logs: list[Log]) -> None:
        """The directory of these logs failed: their partitions say so from now on."""
        for log in logs:
            partition = self.replicas.partition(log.topic, UNASSIGNED_ID, log.partition, by_id=False)
            if not isinstance(partition, int):
                partition.close(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        if not self.logs.any_online and self.on_failed is not None:
            self.on_failed(f"every log directory failed: {', '.join(self.logs.directories())}; see the log")

    # What the parts ask of the broker.

    def nodes(self, connection: Connection) -> list[Node]:
        """The brokers as the client of this connection should reach them."""
        return self.listening.nodes(self.image.brokers, self.broker_id, connection)

    @property
    def image(self) -> ClusterImage:
        """What the cluster is now."""
        return self.tables.image

    def topic_changed(self, topic: TopicImage, done: Callable[[Outcome], object] = Outcome.result) -> None:
        """A topic is new or was changed, durably; `done` is called once it is hosted so."""

        def hosted(outcome: Outcome) -> None:
            done(outcome_of(self._topic_hosted, (topic,)) if outcome.error is None else outcome)

        self.hosting.apply(topic, hosted)

    def _topic_hosted(self, topic: TopicImage) -> None:
        self.tables.put(topic)
        self._coordinate(topic.name)

    def topic_gone(self, name: str, done: Callable[[Outcome], object] = Outcome.result) -> None:
        """A topic was deleted, durably; `done` is called once its files are on their way out."""
        self.tables.remove(name)
        self.descriptions.forget(name)
        self.hosting.drop(name, done)
        if self._coordinates:
            self.group_coordinator.topic_gone(name)

    @property
    def groups(self) -> "GroupService":
        """The groups this broker coordinates."""
        return self.group_coordinator.groups

    @cached_property
    def group_coordinator(self) -> "GroupCoordinator":
        """Made on first use: what it imports would be a sixth of a start, and many brokers never have a group."""
        from kafkalite.coordinators.group.coordinator import GroupCoordinator

        made = GroupCoordinator(self)
        speaks_consumer = "consumer" in self.config.group_coordinator_rebalance_protocols
        consumer = made.groups.fast_consumer_heartbeat if speaks_consumer else None
        self.heartbeats.register_callbacks(classic=made.groups.fast_heartbeat, consumer=consumer)
        if self._ending:
            made.close()
        return made

    @property
    def _coordinates(self) -> bool:
        return "group_coordinator" in vars(self)

    def _coordinate(self, changed: str) -> None:
        """Groups hear of a topic that changed; where their own is there, they are loaded, in the background."""
        if self._coordinates or (changed == OFFSETS.name and changed in self.tables.topics):
            self.group_coordinator.topic_changed(changed)

    def configure_broker(
        self, texts: Mapping[str, str], *, all_brokers: bool, then: Callable[[Refusal | None], None]
    ) -> None:
        """Replace the dynamic settings of this broker or of all, and put them into force once they are durable."""

        def configured() -> None:
            default = texts if all_brokers else self.config.dynamic_default
            own = self.config.dynamic if all_brokers else texts
            for line in not_in_force(self.config.dynamic_default if all_brokers else self.config.dynamic, texts):
                LOGGER.warning("%s", line)
            self.config = BrokerConfig(self.config.static, default, own)
            self.hosting.configure(self.config, self.tables.topics)
            self.listening.configure(self.config)
            self.logs.upkeep.producer_silent_ms = self.config.producer_id_expiration_ms

        self.store.configure_broker(None if all_brokers else self.broker_id, texts, applying(configured, then))

    def configure_group(self, group: str, texts: Mapping[str, str], then: Callable[[Refusal | None], None]) -> None:
        """Replace the settings of a group, and put them into force once they are durable."""

        def configured() -> None:
            if texts:
                self.group_configs[group] = dict(texts)
            else:
                self.group_configs.pop(group, None)

        self.store.configure_group(group, texts, applying(configured, then))


def temporary_path() -> str:
    """Where a broker without a directory will keep its files; its start makes it, and not who only builds a broker."""
    import tempfile  # a broker with a directory of its own starts without

    return os.path.join(tempfile.gettempdir(), f"kafkalite-{os.urandom(8).hex()}")


def remove_directory(path: str) -> None:
    """Remove a temporary directory with all that is in it."""
    import shutil

    shutil.rmtree(path)
