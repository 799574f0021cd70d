"""The state of a member that its procedures share, and the watches of its session."""

from typing import NamedTuple, TypeAlias

from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.membership.effects import Call, Children, Effect, Exists, Get, Problem, Read
from kafkalite_sdk.zk.membership.settings import MembershipSettings

WatchKey: TypeAlias = tuple[bool, str]  # whether it is a watch of children, and the path
StreamNumbers: TypeAlias = dict[TopicPartition, int]


class Session(NamedTuple):
    """A session with the coordination service: its id, and the wall time of its start in milliseconds."""

    session_id: int
    wall_ms: int


class Watches:
    """The watches that are set: at most one for each node and kind, or their number would grow with each read."""

    def __init__(self) -> None:
        self._tokens: dict[WatchKey, int] = {}
        self._keys: dict[int, WatchKey] = {}

    def missing(self, read: Read) -> Read:
        """The read, without its watch if that is set already."""
        return read._replace(watch=read.watch and watch_key(read) not in self._tokens)

    def add(self, call: Call, token: int) -> None:
        """Note the watch of a call, if it has one."""
        if isinstance(call, Get | Exists | Children) and call.watch:
            self._tokens[watch_key(call)] = token
            self._keys[token] = watch_key(call)

    def remove(self, token: int) -> str | None:
        """The watch has fired, or was not set because its read failed: its path, or None if it is not known."""
        key = self._keys.pop(token, None)
        if key is None:
            return None
        del self._tokens[key]
        return key[1]

    def clear(self) -> None:
        """The session is over."""
        self._tokens.clear()
        self._keys.clear()


class MemberState:
    """What a member is and has.

    Arguments:
        settings: of the member.

    Attributes:
        now: of the last input, in seconds.
        session: None = there is none.
        suspended: the session has no connection: changes would fail.
        changed: a watch of the group has fired since the last read of the group began.
        held: the owner nodes of this session, with their streams.
        unknown: owner nodes that this session may have, because the result of a change is not known (yet).
        active: the partitions of the last Fetch, with their streams; None = they are released.
        releasing: the token of the Release that is not answered.
        blocked: the owner nodes of others that the next claim waits for.
        watches: of the session.
        effects: to be taken.
    """

    def __init__(self, settings: MembershipSettings) -> None:
        self.settings = settings
        self.now = 0.0
        self.session: Session | None = None
        self.suspended = False
        self.changed = False
        self.held: StreamNumbers = {}
        self.unknown: StreamNumbers = {}
        self.active: StreamNumbers | None = None
        self.releasing: int | None = None
        self.blocked: set[str] = set()
        self.watches = Watches()
        self.effects: list[Effect] = []

    def report(self, error: Exception) -> None:
        """Report a problem; the member continues."""
        self.effects.append(Problem(error))

    def end_session(self) -> None:
        """The session is over, and its nodes are gone."""
        self.session, self.suspended = None, False
        self.held, self.unknown = {}, {}
        self.blocked.clear()
        self.watches.clear()


def watch_key(read: Read) -> WatchKey:
    """The kind and the path of a read's watch; those of Get and Exists are of one kind."""
    return isinstance(read, Children), read.path
