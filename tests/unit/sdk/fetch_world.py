"""Brokers with partition logs, elections and fetch sessions, and a consumer whose records are compared with them.

A log has versions: a truncation begins a new one. The consumer may read an older version to the end of what it has
fetched; it may not mix two versions, skip a record or return one twice (`Checker`).
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalite_sdk._speedups.consumer_records import Record, RecordDecoder
from kafkalite_sdk.client.cluster_view import ClusterView
from kafkalite_sdk.consumer.fetch.fetch_node import FetchCall
from kafkalite_sdk.consumer.fetch.fetch_settings import FetchSettings
from kafkalite_sdk.consumer.fetch.fetcher import Fetcher
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST
from kafkalite_sdk.consumer.offsets.positions import PartitionState, Positions

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.records import Builder
from kafkalite.records.control import ControlType, Marker, build_marker
from kafkalite.state.fetch_sessions import FetchSession, FetchSessions, SessionPartition

Code = KafkaErrorCode
TopicResponse = FetchResponse.FetchableTopicResponse
PartitionData = TopicResponse.PartitionData
BROKERS = (1, 2, 3)
REPLICA_RACK = "near"
PASSING_ERRORS = (Code.KAFKA_STORAGE_ERROR, Code.OFFSET_NOT_AVAILABLE, Code.UNKNOWN_SERVER_ERROR)
ABORTING, COMMITTING = 7, 8  # producer ids


class LogBatch(NamedTuple):
    """A batch of a log; `values` is empty for a control batch and for records of an aborted transaction."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes
    values: dict[int, bytes]
    aborted_from: int  # first offset of the aborted transaction that this marker ends, -1 = none


class Log:
    """The log of one partition."""

    def __init__(self, name: TopicPartition, leader: int) -> None:
        self.name = name
        self.leader = leader
        self.epoch = 0
        self.start = 0
        self.batches: list[LogBatch] = []
        self.versions: list[dict[int, bytes]] = [{}]
        self.optional: set[int] = set()  # offsets that compaction has removed
        self.written = 0

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.start

    def append(self, rng: random.Random) -> None:
        builder = Builder()
        values = {}
        aborted = rng.random() < 0.15
        for number in range(rng.randrange(1, 5)):
            self.written += 1
            value = b"%s-%d-%d" % (self.name.topic.encode(), self.name.partition, self.written)
            value += bytes(rng.choice((0, 0, 10, 400)))
            builder.append(1000, None, value)
            values[self.end + number] = value
        producer = ABORTING if aborted else COMMITTING
        fields: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        codec = rng.choice((0, 0, 3)) if rng.random() < 0.5 else 0
        base = self.end
        data = builder.build(
            codec, base_offset=base, leader_epoch=self.epoch, **(fields if rng.random() < 0.5 or aborted else {})
        )
        last = base + len(values) - 1
        self._add(LogBatch(base, last, self.epoch, data, {} if aborted else values, -1))
        if aborted:
            marker = bytearray(build_marker(Marker(ControlType.ABORT, 0), ABORTING, 0, 1000))
            marker[:8] = (last + 1).to_bytes(8, "big")
            marker[12:16] = self.epoch.to_bytes(4, "big")
            self._add(LogBatch(last + 1, last + 1, self.epoch, bytes(marker), {}, base))

    def _add(self, batch: LogBatch) -> None:
        self.batches.append(batch)
        self.versions[-1].update(batch.values)

    def elect(self, leader: int, lost_batches: int) -> None:
        """A new leader, without the last batches of the old one."""
        self.leader = leader
        self.epoch += 1
        kept = self.batches[: len(self.batches) - lost_batches] if lost_batches else self.batches
        while kept and kept[-1].aborted_from < 0 and not kept[-1].values:
            kept = kept[:-1]  # records of an aborted transaction need their marker
        if len(kept) != len(self.batches):
            self.batches = list(kept)
            self.versions.append({offset: value for batch in kept for offset, value in batch.values.items()})
            self.start = min(self.start, self.end)

    def compact(self, rng: random.Random) -> None:
        """Remove a batch that is not the last one."""
        removable = [b for b in self.batches[:-1] if b.values and b.base_offset > self.start]
        if removable:
            batch = rng.choice(removable)
            self.batches.remove(batch)
            self.optional.update(batch.values)

    def retain(self, rng: random.Random) -> None:
        """Delete the oldest batches."""
        if len(self.batches) > 1:
            del self.batches[: rng.randrange(1, len(self.batches))]
            self.start = self.batches[0].base_offset

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and the offset behind it."""
        known = [b for b in self.batches if b.epoch <= epoch]
        if epoch == self.epoch or not [b for b in self.batches if b.epoch > epoch]:
            return epoch, self.end
        if not known:
            return epoch, self.start
        later = next(b for b in self.batches if b.epoch > epoch)
        return known[-1].epoch, later.base_offset

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, list[LogBatch]]:
        found: list[LogBatch] = []
        size = 0
        for batch in self.batches:
            if batch.last_offset >= offset:
                if found and size + len(batch.data) > max_bytes:
                    break
                found.append(batch)
                size += len(batch.data)
        return b"".join(b.data for b in found), found


class World:
    """A cluster, a consumer and the network between them.

    Arguments:
        seed: of everything random.
        fetch_version: that the brokers serve: 4 has no sessions, 12 names topics, 18 has topic ids.
        fetcher: creates the fetcher; one with a planted bug in a test of this world.
    """

    def __init__(
        self, seed: int, fetch_version: int = 18, fetcher: Callable[..., Fetcher[bytes, bytes]] = Fetcher
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.version = fetch_version
        self.topic_ids = {"t": bytes(15) + b"\1", "u": bytes(15) + b"\2"}
        self.logs = {
            (name := TopicPartition(topic, number)): Log(name, self.rng.choice(BROKERS))
            for topic in self.topic_ids
            for number in range(3)
        }
        self.sessions = {each: FetchSessions(10, 1 << 30, lambda: self.rng.randrange(1, 2**31)) for each in BROKERS}
        self.view = ClusterView()
        self.positions = Positions(EARLIEST)
        self.settings = FetchSettings(
            partition_max_bytes=self.rng.choice((100, 1000, 4000)),
            max_bytes=self.rng.choice((500, 100_000)),
            buffer_max_bytes=self.rng.choice((3000, 200_000)),
            isolation_level=1,
            rack=REPLICA_RACK if self.rng.random() < 0.5 else "",
        )
        decoder: RecordDecoder[bytes, bytes] = RecordDecoder(
            read_committed=True, offload_bytes=self.rng.choice((0, 0, 150))
        )
        self.fetcher = fetcher(self.settings, decoder, self.positions, self.view)
        self.open: list[FetchCall] = []
        self.jobs: list[Any] = []
        self.checkers: dict[PartitionState, Checker] = {}
        self.taken = 0
        self.incremental = 0
        self.refresh()

    # ---- the brokers ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Metadata arrives."""
        topics = []
        for topic, topic_id in self.topic_ids.items():
            partitions = [
                MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                    partition_index=number,
                    leader_id=self.logs[TopicPartition(topic, number)].leader,
                    leader_epoch=self.logs[TopicPartition(topic, number)].epoch,
                    replica_nodes=[],
                    isr_nodes=[],
                )
                for number in range(3)
            ]
            has_id = self.version > 12
            topics.append(
                MetadataResponse.MetadataResponseTopic(
                    name=topic, topic_id=topic_id if has_id else ZERO_UUID, partitions=partitions
                )
            )
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=each, host="h", port=each) for each in BROKERS]
        self.view.update(MetadataResponse(brokers=brokers, topics=topics))
        for name, state in self.positions.states.items():
            self.positions.leader_epoch_changed(state, self.logs[name].epoch)
        self.fetcher.metadata_changed()
        self.fetcher.stale_topics.clear()

    def respond(self, call: FetchCall) -> FetchResponse:
        """The response of a broker."""
        request, sessions = call.request, self.sessions[call.node]
        if self.version < 7:
            asked = [(key, part) for key, part in self.named(request)]
            return self.response(call, asked, 0, incremental=False)
        if request.session_epoch == 0:
            sessions.close(request.session_id)
            asked = self.named(request)
            opened = FetchSession(self.version > 12, call.node, int(self.now * 1000))
            for key, part in asked:
                opened.update(key, part)
            return self.response(call, asked, sessions.open(opened), incremental=False)
        now_ms = int(self.now * 1000)
        session = sessions.resume(request.session_id, request.session_epoch, self.version > 12, call.node, now_ms)
        if isinstance(session, Code):
            return FetchResponse(error_code=session, responses=[])
        self.incremental += 1
        for key, part in self.named(request):
            session.update(key, part)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.forget((self.key(topic), number))
        sessions.recount(session)
        return self.response(call, list(session.partitions.items()), session.id, incremental=True)

    def key(self, topic: Any) -> object:
        return topic.topic_id if self.version > 12 else topic.topic

    def named(self, request: FetchRequest) -> list[Any]:
        asked = []
        for topic in request.topics:
            for each in topic.partitions:
                by_id = self.version > 12
                part = SessionPartition("" if by_id else topic.topic, topic.topic_id if by_id else b"", each.partition)
                part.update_request(each.fetch_offset, each.partition_max_bytes, each.current_leader_epoch, -1, -1)
                asked.append(((self.key(topic), each.partition), part))
        return asked

    def response(self, call: FetchCall, asked: list[Any], session_id: int, *, incremental: bool) -> FetchResponse:
        topics = []
        left = call.request.max_bytes
        for _key, part in asked:
            data, size = self.partition(call.node, part, left, call.request.rack_id)
            left -= size
            if incremental and not part.has_news(
                data.error_code, size, data.high_watermark, data.log_start_offset, data.preferred_read_replica >= 0
            ):
                continue
            part.update_response(data.error_code, data.high_watermark, data.log_start_offset)
            topics.append(TopicResponse(topic=part.topic, topic_id=part.topic_id or ZERO_UUID, partitions=[data]))
        return FetchResponse(session_id=session_id, responses=topics)

    def partition(self, node: int, part: SessionPartition, left: int, rack: str) -> tuple[PartitionData, int]:
        names = {v: k for k, v in self.topic_ids.items()}
        topic = part.topic or names.get(part.topic_id, "")
        log = self.logs.get(TopicPartition(topic, part.partition))
        empty = PartitionData(partition_index=part.partition, high_watermark=-1, aborted_transactions=[], records=None)
        replica = node == log.leader % len(BROKERS) + 1 if log is not None else False
        if log is None:
            empty.error_code = Code.UNKNOWN_TOPIC_ID
        elif node != log.leader and not (replica and rack):
            empty.error_code = Code.NOT_LEADER_OR_FOLLOWER
            if self.version >= 16 and self.rng.random() < 0.5:
                empty.current_leader = PartitionData.LeaderIdAndEpoch(leader_id=log.leader, leader_epoch=log.epoch)
        elif part.current_leader_epoch not in (-1, log.epoch):
            older = part.current_leader_epoch < log.epoch
            empty.error_code = Code.FENCED_LEADER_EPOCH if older else Code.UNKNOWN_LEADER_EPOCH
        elif not log.start <= part.fetch_offset <= log.end:
            empty.error_code = Code.OFFSET_OUT_OF_RANGE
        elif self.rng.random() < 0.02:
            empty.error_code = self.rng.choice(
                (Code.KAFKA_STORAGE_ERROR, Code.OFFSET_NOT_AVAILABLE, Code.UNKNOWN_SERVER_ERROR)
            )
        elif rack and self.version >= 11 and node == log.leader and self.rng.random() < 0.3:
            empty.preferred_read_replica = log.leader % len(BROKERS) + 1
        else:
            return self.data(log, part, left, replica=node != log.leader)
        return empty, 0

    def data(self, log: Log, part: SessionPartition, left: int, *, replica: bool) -> tuple[PartitionData, int]:
        data, found = log.read(part.fetch_offset, min(part.max_bytes, left)) if left > 0 else (b"", [])
        if replica and self.rng.random() < 0.5:  # behind the leader
            data, found = b"", []
        if data and self.rng.random() < 0.1 and len(found) > 1:
            data = data[: -self.rng.randrange(1, len(found[-1].data))]
        end = found[-1].last_offset if found else -1
        aborted = [
            PartitionData.AbortedTransaction(producer_id=ABORTING, first_offset=b.aborted_from)
            for b in log.batches
            if b.aborted_from >= 0 and b.last_offset >= part.fetch_offset and b.aborted_from <= end
        ]
        self.rng.shuffle(aborted)
        return PartitionData(
            partition_index=part.partition,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            aborted_transactions=aborted,
            records=memoryview(bytearray(data)),
        ), len(data)

    # ---- the consumer -----------------------------------------------------------------------------------------------

    def assign(self, names: list[TopicPartition]) -> None:
        added, removed = self.positions.assign(names)
        assert not removed or all(name not in self.positions.states for name in removed)
        for name in added:
            state = self.positions.states[name]
            self.checkers[state] = Checker(self.logs[name])
            self.seek(name, self.logs[name].start)

    def seek(self, name: TopicPartition, offset: int, epoch: int = -1) -> None:
        state = self.positions.states[name]
        self.positions.seek(state, offset, epoch)
        if self.rng.random() < 0.5:
            self.fetcher.drop([name])
        self.checkers[state].seek(offset)

    def resolve(self) -> None:
        """Resets and validations, as the consumer does them with ListOffsets and OffsetForLeaderEpoch."""
        for name, state in list(self.positions.states.items()):
            log = self.logs[name]
            if state.reset is not None:
                self.seek(name, log.start)
            elif state.validating:
                epoch, end = log.epoch_end(state.leader_epoch)
                if state.leader_epoch > log.epoch or end >= state.position:
                    self.positions.validated(state, log.epoch)
                else:
                    self.fetcher.drop([name])
                    self.seek(name, max(end, log.start), epoch)
                    self.positions.validated(state, log.epoch)

    def send(self, usable: Callable[[int], bool] = lambda node: True) -> None:
        for call in self.fetcher.requests(self.now, usable):
            assert call.node not in [each.node for each in self.open]
            assert (call.version_max is None) == (self.version > 12)
            self.open.append(call)

    def take(self, records_max: int) -> None:
        had = self.fetcher.has_records
        records: list[Record[bytes, bytes]] = self.fetcher.take(records_max)
        assert had or not records
        assert len(records) <= records_max
        for record in records:
            state = self.positions.states[TopicPartition(record.topic, record.partition)]
            self.checkers[state].deliver(record.offset, record.value)
        for name, state in self.positions.states.items():
            if state.position >= 0:
                self.checkers[state].advance(state.position)
                assert not records or state.position <= max(self.logs[name].end, *self.checkers[state].ends())
        self.taken += len(records)
        self.jobs += self.fetcher.jobs()

    def deliver(self, index: int) -> None:
        call = self.open.pop(index)
        self.fetcher.answered(call, self.respond(call), self.now)

    def lose(self, index: int) -> None:
        call = self.open.pop(index)
        if self.rng.random() < 0.5:
            self.respond(call)  # the broker has applied it
        self.fetcher.lost(call, KafkaConnectionError("lost"), self.now)

    def end_job(self) -> None:
        job = self.jobs.pop(self.rng.randrange(len(self.jobs)))
        job.decompress()
        self.fetcher.decompressed(job)


class Checker:
    """The records that a consumer may return of a partition after each other."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.position = 0
        self.version = 0
        self.last: tuple[int, bytes] | None = None

    def seek(self, offset: int) -> None:
        self.position = offset
        self.last = None
        self.version = 0

    def ends(self) -> list[int]:
        return [max(version, default=-1) + 100 for version in self.log.versions]

    def deliver(self, offset: int, value: bytes) -> None:
        assert offset >= self.position, f"{self.log.name}: offset {offset} at position {self.position}"
        assert self.find(offset, value), f"{self.log.name}: {offset} {value!r} behind {self.last}, from {self.position}"
        self.last = offset, value
        self.position = offset + 1

    def find(self, offset: int, value: bytes) -> bool:
        """Whether a version of the log has this record next."""
        for number in range(self.version, len(self.log.versions)):
            version = self.log.versions[number]
            if version.get(offset) != value:
                continue
            if self.last is not None and not self.has_last(version, *self.last):
                continue
            skipped = [
                each for each in range(self.position, offset) if each in version and each not in self.log.optional
            ]
            if not skipped:
                self.version = number
                return True
        return False

    def has_last(self, version: dict[int, bytes], offset: int, value: bytes) -> bool:
        """Whether a version had the record that was returned last."""
        return version.get(offset) == value or offset < self.log.start or offset in self.log.optional

    def advance(self, position: int) -> None:
        """The position moves over records that are not returned."""
        assert position >= self.position
        for number in range(self.version, len(self.log.versions)):
            version = self.log.versions[number]
            if not any(each in version and each not in self.log.optional for each in range(self.position, position)):
                self.position = position
                return
        raise AssertionError(f"{self.log.name}: the position skips records between {self.position} and {position}")
