"""The fetch session with one broker (KIP-227): requests name only the partitions that have changed.

Pure: no I/O, no clock. Invariants:
1. One request of a session is open at a time.
2. An incremental request names a partition exactly when its offset, limits or leader epoch differ from those that the
   broker has from earlier requests of the session.
3. After a session error, a request without a response or a new topic id, the next request names all partitions.
Sources: FetchSessionHandler.java and FetchMetadata.java of Apache Kafka 4.3.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse

FetchTopic = FetchRequest.FetchTopic
ForgottenTopic = FetchRequest.ForgottenTopic
NO_SESSION, FULL, FINAL = 0, 0, -1
EPOCH_MAX = 2**31 - 1
NAMES_VERSION_MAX = 12  # later versions name topics by id


class WantedPartition(NamedTuple):
    """What a request asks of a partition.

    Attributes:
        topic_id: zeros = unknown.
        offset: of the first record.
        leader_epoch: of the leader as the client knows it, -1 = unknown.
        max_bytes: largest size of the response, unless the first batch is larger.
    """

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchSession:
    """The session with one broker, and the fields of the requests that belong to it.

    Attributes:
        partitions: those of the last request, as the broker knows them.
        names: of the topics in the session, by topic id.
    """

    __slots__ = ("_epoch", "_session_id", "_without_id", "names", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, WantedPartition] = {}
        self.names: dict[bytes, str] = {}
        self._session_id = NO_SESSION
        self._epoch = FULL
        self._without_id: set[TopicPartition] = set()

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for this client."""
        return self._session_id != NO_SESSION

    def request(
        self, wanted: Mapping[TopicPartition, WantedPartition], changed: Collection[TopicPartition] | None = None
    ) -> tuple[FetchRequest, int | None]:
        """Return a request with the partitions and the fields of the session, and the highest version to use.

        Arguments:
            wanted: all partitions from which records are wanted.
            changed: those that may differ from the last request; None = all.
        """
        candidates = changed if changed is not None else wanted.keys() | self.partitions.keys()
        by_id = not self._without_id
        self._without_id.difference_update(candidates)
        self._without_id.update(each for each in candidates if each in wanted and wanted[each].topic_id == ZERO_UUID)
        if by_id is bool(self._without_id) or self._has_recreated(wanted, candidates):
            self._epoch = FULL
        removed: dict[TopicPartition, WantedPartition] = {}
        if self._epoch == FULL:
            added = dict(wanted)
            self.partitions, self.names = {}, {}
        else:
            added, removed = self._differences(wanted, candidates)
        self.partitions.update(added)
        self.names.update((asked.topic_id, each.topic) for each, asked in added.items())
        if len(self.names) > 2 * len(self.partitions):
            self.names = {asked.topic_id: each.topic for each, asked in self.partitions.items()}
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_topics(added),
            forgotten_topics_data=_forgotten(removed),
        )
        return request, NAMES_VERSION_MAX if self._without_id else None

    def _differences(
        self, wanted: Mapping[TopicPartition, WantedPartition], candidates: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, WantedPartition], dict[TopicPartition, WantedPartition]]:
        """The partitions that the request adds or changes, and those that it removes from the session."""
        added: dict[TopicPartition, WantedPartition] = {}
        removed: dict[TopicPartition, WantedPartition] = {}
        for each in candidates:
            asked = wanted.get(each)
            if asked is None:
                if each in self.partitions:
                    removed[each] = self.partitions.pop(each)
            elif self.partitions.get(each) != asked:
                added[each] = asked
        return added, removed

    def _has_recreated(
        self, wanted: Mapping[TopicPartition, WantedPartition], candidates: Iterable[TopicPartition]
    ) -> bool:
        """Whether a topic was deleted and created again: brokers without topic ids in Fetch know its name only."""
        sent = self.partitions
        return any(
            each in sent and each in wanted and sent[each].topic_id != wanted[each].topic_id for each in candidates
        )

    def apply_response(self, response: FetchResponse) -> bool:
        """Apply the session fields of a response; return whether it has data. Otherwise a full request follows."""
        if response.error_code:
            if response.error_code == KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self._epoch = FULL
            return False
        if self._epoch == FULL:
            self._session_id = response.session_id
            self._epoch = FULL if response.session_id == NO_SESSION else 1
        elif response.session_id == self._session_id:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        else:  # the broker has ended the session
            self._session_id = response.session_id
            self._epoch = FULL
        return True

    def lost(self) -> None:
        """A request has no response: the broker may have applied it or not."""
        self._epoch = FULL

    def final_request(self) -> FetchRequest:
        """Return the request that ends the session."""
        return FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=self._session_id, session_epoch=FINAL, topics=[], max_bytes=0
        )


def _topics(partitions: Mapping[TopicPartition, WantedPartition]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, number), asked in partitions.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=asked.topic_id, partitions=[])
        topic.partitions.append(
            FetchTopic.FetchPartition(
                partition=number,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(removed: Mapping[TopicPartition, WantedPartition]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for each, asked in removed.items():
        if each.topic not in topics:
            topics[each.topic] = ForgottenTopic(topic=each.topic, topic_id=asked.topic_id, partitions=[])
        topics[each.topic].partitions.append(each.partition)
    return list(topics.values())
