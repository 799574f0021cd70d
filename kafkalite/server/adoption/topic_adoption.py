"""Adopts topics of a stopped Apache Kafka: the files of their partitions and their entries in the journal.

1. A topic is registered when all its files are here and complete. Its directories get their final names after that, as
   a start makes strays of the partitions of topics that it does not know.
2. A topic keeps its id. Each partition's leader epoch begins above the last one in its files, and the next producer id
   above all of them, those in `__transaction_state` included: the new journal would assign the ids of the other
   cluster again.
3. A kill at any step loses nothing: the same call continues.
4. The configs of topics are in the metadata of their cluster, which is not read. So a topic gets configs with which
   none of its records is deleted (`adopted_configs`).
5. Internal topics of consumers and transactions are adopted, compacted as before. `__cluster_metadata` and
   `__share_group_state` are not: nothing here reads them. Open transactions are listed.
"""

import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Clock, Random
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.cluster.metadata.store import MetadataStore, await_completion
from kafkalite.config.topic import TopicConfig
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.tree import Delete, Operation
from kafkalite.model import TopicPartition, uuid_text
from kafkalite.server.adoption.transaction_states import read_states
from kafkalite.server.process.resources import JOURNAL
from kafkalite.server.startup.start_alone import FIRST_BROKER
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.storage import checkpoints, partition_adoption
from kafkalite.storage.dirs.log_directory import Identity, LogDirectory
from kafkalite.storage.partition_adoption import AdoptionError, Candidate, Ready

COMPACTED = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
TRANSACTION_STATE = "__transaction_state"
INTERNAL = ("__consumer_offsets", TRANSACTION_STATE)
Progress = Callable[[int], object]


@dataclass(slots=True)
class AdoptedTopic:
    """The result of an adoption.

    `missing`: partitions of which the source has no files; they begin empty. `created`: topics that the journal did not
    know, with the configs that they were given. `open_transactions`: by transactional id; the next start completes the
    prepared ones, and aborts the others at their timeout.
    """

    topics: dict[str, int] = field(default_factory=dict)
    partitions: int = 0
    bytes_dropped: int = 0
    missing: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    there_before: list[str] = field(default_factory=list)
    created: dict[str, dict[str, str]] = field(default_factory=dict)
    open_transactions: list[TransactionMetadata] = field(default_factory=list)


def adopted_configs(topic: str, candidates: Iterable[Candidate]) -> dict[str, str]:
    """Return the configs of a topic that is created for these partitions: its own are unknown, and no record may be
    deleted.

    No retention by time or size; compaction where a cleaner has compacted a partition before, as the topic would grow
    without bound otherwise. Internal topics get the configs with which Kafka creates them.
    """
    if topic in INTERNAL:
        return COMPACTED
    compacted = any(candidate.cleaned is not None for candidate in candidates)
    return {**KEEP_ALL, "cleanup.policy": "compact"} if compacted else KEEP_ALL


class TopicAdoption:
    """One call of `kafkalite log adopt`.

    Arguments:
        disk: holds both directories.
        clock: gives the times in the journal.
        random: gives new ids.
        source: a log directory of a stopped Apache Kafka.
        directory: the target, locked.
        move: rename instead of copying.
    """

    def __init__(
        self, disk: Disk, clock: Clock, random: Random, source: str, directory: LogDirectory, *, move: bool
    ) -> None:
        self.result = AdoptedTopic()
        self._disk = disk
        self._clock = clock
        self._random = random
        self._source = source
        self._directory = directory
        self._data = directory.path
        self._move = move
        self._deletions: set[bytes] = set()  # topics whose deletion is recorded

    async def run(self, bar: Callable[[int], Progress]) -> AdoptedTopic:
        """Adopt the topics; `bar` is called with the number of bytes to copy and returns the progress callback.

        Raises AdoptionError, DirectoryError, JournalError, ZnodeError, OSError.
        """
        if self._disk.exists(os.path.join(self._source, JOURNAL)):
            raise AdoptionError(
                f"{self._source}: a log directory of kafkalite already; start it: kafkalite serve --data {self._source}"
            )
        return await self._with_store(lambda session, store, broker_id: self._adopt(session, store, broker_id, bar))

    async def _with_store(self, work: Callable[[Coordination, MetadataStore, int], Awaitable[None]]) -> AdoptedTopic:
        """Call `work` with the journal of the target directory open."""
        known = self._directory.identity()
        service = EmbeddedCoordination.open(self._disk, os.path.join(self._data, JOURNAL), self._clock)
        try:
            session = service.connect()
            store = MetadataStore(session, self._clock)
            await store.prepare()
            broker_id = FIRST_BROKER if known is None else known.broker_id
            cluster_id = await store.cluster_id(uuid_text(self._random.uuid()))
            self._directory.claim(Identity(cluster_id, broker_id), uuid_text(self._random.uuid()))
            store.register(broker_id)
            self._deletions = await store.load_notices()
            await work(session, store, broker_id)
            await store.close()
        finally:
            service.close()
        return self.result

    async def _adopt(
        self, session: Coordination, store: MetadataStore, broker_id: int, bar: Callable[[int], Progress]
    ) -> None:
        fresh = not self._disk.exists(os.path.join(self._data, checkpoints.RECOVERY_POINTS))
        topics = {topic.name: topic for topic in await store.topics()}
        found, self.result.left_out = partition_adoption.find(self._disk, self._source, self._data)
        candidates = self._wanted(partition_adoption.with_ids(found, self._random.uuid), topics)
        size = 0 if self._move else partition_adoption.check_space(self._disk, candidates, self._data)
        advance = bar(size)
        for candidate in candidates:
            partition_adoption.fetch(self._disk, candidate, self._data, move=self._move, advance=advance)
        await self._make_ready(session, store, broker_id, candidates, topics)
        if fresh:
            checkpoints.write_clean_shutdown(self._disk, self._data)

    async def _make_ready(
        self,
        session: Coordination,
        store: MetadataStore,
        broker_id: int,
        candidates: Sequence[Candidate],
        topics: dict[str, TopicImage],
    ) -> None:
        """Recover the fetched partitions, register them, and rename them to their final names."""
        by_topic: dict[str, dict[int, tuple[Candidate, Ready]]] = defaultdict(dict)
        for candidate in candidates:
            ready = partition_adoption.make_ready(self._disk, candidate, self._data, TopicConfig())
            by_topic[candidate.topic][candidate.partition] = candidate, ready
            self.result.bytes_dropped += ready.bytes_dropped
        found = [ready.largest_producer_id for partitions in by_topic.values() for _, ready in partitions.values()]
        adopted = by_topic.get(TRANSACTION_STATE, {}).values()
        states = [read_states(self._disk, self._staged(candidate)) for candidate, _ in adopted]
        found += [each.largest_producer_id for each in states]
        self.result.open_transactions = sorted(transaction for each in states for transaction in each.open)
        await store.raise_producer_ids(max(found, default=-1))
        for name, partitions in by_topic.items():
            await self._register(session, store, broker_id, topics.get(name), partitions)
            partition_adoption.write_checkpoints(
                self._disk, self._data, {TopicPartition(name, index): ready for index, (_, ready) in partitions.items()}
            )
            for candidate, _ready in partitions.values():
                partition_adoption.install(self._disk, candidate, self._data)

    def _staged(self, candidate: Candidate) -> str:
        return os.path.join(self._data, candidate.name + partition_adoption.ADOPTING)

    def _wanted(self, found: Sequence[Candidate], topics: dict[str, TopicImage]) -> list[Candidate]:
        """Return the partitions that are not here yet. Raises AdoptionError if another topic has the name."""
        wanted = []
        for candidate in found:
            topic = topics.get(candidate.topic)
            if topic is not None and topic.topic_id != candidate.topic_id:
                raise AdoptionError(f"{candidate.source}: {self._data} has another topic with this name")
            if self._disk.exists(os.path.join(self._data, candidate.name)):
                if topic is None:
                    raise AdoptionError(f"{os.path.join(self._data, candidate.name)}: exists, but no topic owns it")
                self.result.there_before.append(candidate.name)
            else:
                wanted.append(candidate)
        return wanted

    async def _register(
        self,
        session: Coordination,
        store: MetadataStore,
        broker_id: int,
        known: TopicImage | None,
        partitions: dict[int, tuple[Candidate, Ready]],
    ) -> None:
        """Register the topic with its partitions and their directories: all or nothing."""
        candidate = next(iter(partitions.values()))[0]
        assert candidate.topic_id is not None
        count = max(max(partitions) + 1, 0 if known is None else len(known.partitions))
        states = {
            index: znodes.PartitionState(
                broker_id, partitions[index][1].next_epoch if index in partitions else 0, (broker_id,)
            )
            for index in range(count)
        }
        node = znodes.TopicNode(candidate.topic_id, dict.fromkeys(range(count), (broker_id,)))
        operations: list[Operation] = []
        if known is None:
            await store.free_name(candidate.topic)
            configs = adopted_configs(candidate.topic, [one for one, _ in partitions.values()])
            self.result.created[candidate.topic] = configs
            operations += znodes.create_topic(candidate.topic, node, configs, states)
            if candidate.topic_id in self._deletions:
                operations.append(Delete(znodes.deleted_topic_path(candidate.topic_id)))
        elif count > len(known.partitions):
            new = {index: state for index, state in states.items() if index >= len(known.partitions)}
            operations += znodes.grow_topic(candidate.topic, node, new)
        for index in partitions:
            if store.noted_directory(candidate.topic_id, index) is None:
                note = znodes.note_directory(candidate.topic_id, index, broker_id, self._directory.directory_id)
                operations.append(note)
                if known is not None and index < len(known.partitions):  # it was missing when the topic was adopted
                    operations += store.keep_state(candidate.topic, index, states[index])
        if operations:
            await await_completion(lambda then: session.multi(operations, then))
        self.result.topics[candidate.topic] = count
        self.result.partitions += len(partitions)
        if known is None:
            self.result.missing += [f"{candidate.topic}-{index}" for index in range(count) if index not in partitions]
