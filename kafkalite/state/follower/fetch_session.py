"""The follower's side of a fetch session: a request names only what has changed since the one before (KIP-227).

1. A full request (epoch 0) names all partitions and opens a session; the following ones name the partitions that are
   new, have another position, or are not fetched any more.
2. What was named is remembered once a request is built. If its response is lost, or has an error, the session on the
   leader is unknown: the next request is a full one, which also closes the old session there.
3. A leader that opens no session (id 0) gets full requests.
4. The work of a request is proportional to what it names.

Source: FetchSessionHandler.java of Apache Kafka 3.9.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.fetch_sessions import EPOCH_INITIAL, SESSION_NONE, next_epoch

ERROR_CODES = frozenset(KafkaErrorCode)  # a newer leader may have others

Key = TypeVar("Key", bound=Hashable)


class Position(NamedTuple):
    """Where a partition is fetched.

    Arguments:
        offset: the end of the follower's log.
        last_epoch: the leader epoch of its last batch, -1 = it has none.
        log_start_offset: of the follower's log.
        leader_epoch: in which it is fetched.
    """

    offset: int
    last_epoch: int
    log_start_offset: int
    leader_epoch: int


class SessionRequest(NamedTuple, Generic[Key]):
    """What a fetch request names.

    Arguments:
        session_id, epoch: of the session.
        positions: of the partitions that are named.
        forgotten: the partitions that leave the session.
    """

    session_id: int
    epoch: int
    positions: dict[Key, Position]
    forgotten: list[Key]


class FetchSession(Generic[Key]):
    """The partitions of one fetcher.

    Arguments:
        name_of: names a partition in an error.

    Attributes:
        positions: of the partitions that the next request fetches; `set` and `remove` change them.
    """

    __slots__ = ("_changed", "_epoch", "_id", "_name_of", "_named", "positions")

    def __init__(self, name_of: Callable[[Key], str] = str) -> None:
        self._name_of = name_of
        self.positions: dict[Key, Position] = {}
        self._id = SESSION_NONE
        self._epoch = EPOCH_INITIAL  # of the next request
        self._named: set[Key] = set()  # the partitions that the session on the leader has
        self._changed: dict[Key, None] = {}  # since the last request

    def set(self, key: Key, position: Position) -> None:
        """Fetch a partition at a position."""
        if self.positions.get(key) != position:
            self.positions[key] = position
            self._changed[key] = None

    def remove(self, key: Key) -> None:
        """Fetch a partition no longer; an unknown one is ignored."""
        if self.positions.pop(key, None) is not None:
            self._changed[key] = None

    def request(self) -> SessionRequest[Key]:
        """Build the next request. `apply_response` or `lose` follows before the next call."""
        changed, self._changed = self._changed, {}
        if self._epoch == EPOCH_INITIAL:
            self._named = set(self.positions)
            return SessionRequest(self._id, EPOCH_INITIAL, dict(self.positions), [])
        positions = {key: self.positions[key] for key in changed if key in self.positions}
        forgotten = [key for key in changed if key not in self.positions and key in self._named]
        self._named.difference_update(forgotten)
        self._named.update(positions)
        return SessionRequest(self._id, self._epoch, positions, forgotten)

    def apply_response(self, error: int, session_id: int, high_watermarks: Mapping[Key, int]) -> str:
        """Use a response.

        Arguments:
            error: of the whole response, a Kafka error code.
            session_id: in the response.
            high_watermarks: of the partitions in the response.

        Returns why the response cannot be used, else an empty text.
        """
        if error:
            self.lose(known=error != KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return KafkaErrorCode(error).name if error in ERROR_CODES else f"error {error}"
        unasked = next((key for key in high_watermarks if key not in self._named), None)
        if unasked is not None:
            self.lose()
            end = high_watermarks[unasked]
            return f"it has {self._name_of(unasked)} with the high watermark {end}, which was not requested"
        if self._epoch == EPOCH_INITIAL and len(high_watermarks) < len(self._named):
            self.lose()
            return f"it has {len(high_watermarks)} of {len(self._named)} partitions"
        if session_id == SESSION_NONE:
            self.lose(known=False)
        else:
            self._id = session_id
            self._epoch = next_epoch(self._epoch)
        return ""

    def lose(self, *, known: bool = True) -> None:
        """The state of the session on the leader is unknown: the next request is a full one.

        Arguments:
            known: whether the leader may have the session, so that the next request closes it there.
        """
        self._epoch = EPOCH_INITIAL
        if not known:
            self._id = SESSION_NONE
