"""A small tree of znodes with versions, transactions and watches; the values are Python values instead of JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BROKERS, TOPICS, CONFIGS, DELETIONS = "/brokers/ids", "/brokers/topics", "/config/topics", "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONTROLLER, EPOCH, FEATURE = "/controller", "/controller_epoch", "/feature"
REASSIGNMENT, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"
ANY = -1
Watch = Callable[[], object]


class Create(NamedTuple):
    path: str
    value: object = None
    owner: int = 0


class Put(NamedTuple):
    path: str
    value: object
    version: int = ANY


class Remove(NamedTuple):
    path: str
    version: int = ANY


class Check(NamedTuple):
    path: str
    version: int = ANY


Change = Create | Put | Remove | Check


class RejectedError(Exception):
    """An operation of a transaction failed."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass
class Znode:
    value: object
    czxid: int
    owner: int = 0
    version: int = 0
    children: dict[str, None] = field(default_factory=dict)
    mzxid: int = 0


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class ZnodeTree:
    """The znodes by path. `committed` is called after each transaction with its writer, the changes and the values
    that they have replaced.
    """

    def __init__(self) -> None:
        self.zxid = 1
        self.nodes: dict[str, Znode] = {"/": Znode(None, 0)}
        self.committed: Callable[[object, Sequence[Change], dict[str, object]], object] = lambda *_: None
        self._watches: dict[tuple[str, str], dict[Watch, None]] = {}
        for path in ("/brokers", BROKERS, TOPICS, "/config", CONFIGS, "/admin", DELETIONS, LOG_DIR_EVENTS):
            self.commit("start", [Create(path)])
        self.commit("start", [Create(EPOCH, 0)])

    # Reads.

    def get(self, path: str) -> Znode | None:
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        node = self.nodes.get(path)
        return [] if node is None else sorted(node.children)

    def below(self, path: str) -> Iterator[str]:
        """All paths below a node, the deepest last."""
        for name in self.children(path):
            yield f"{path}/{name}"
            yield from self.below(f"{path}/{name}")

    def watch(self, kind: str, path: str, watch: Watch) -> None:
        """Set a one-shot watch on the `data` or the `children` of a path."""
        self._watches.setdefault((kind, path), {})[watch] = None

    # Changes.

    def commit(self, writer: object, changes: Sequence[Change]) -> tuple[int, ...]:
        """Execute all changes or none; raises RejectedError. Returns the version of the node after each."""
        before: dict[str, object] = {}
        undo: list[tuple[str, Znode | None]] = []
        versions: list[int] = []
        self.zxid += 1
        for at, change in enumerate(changes):
            known = self.nodes.get(change.path)
            if not self._possible(change, known):
                self._undo(undo)
                raise RejectedError(at)
            before.setdefault(change.path, None if known is None else known.value)
            undo.append((change.path, None if known is None else Znode(**vars(known))))
            versions.append(self._apply(change, known))
        self.committed(writer, changes, before)
        for change in changes:
            self._fire(change)
        return tuple(versions)

    def _possible(self, change: Change, known: Znode | None) -> bool:
        if isinstance(change, Create):
            return known is None and parent(change.path) in self.nodes
        if known is None or change.version not in (ANY, known.version):
            return False
        return not (isinstance(change, Remove) and known.children)

    def _apply(self, change: Change, known: Znode | None) -> int:
        name = change.path.rpartition("/")[2]
        if isinstance(change, Create):
            self.nodes[change.path] = Znode(change.value, self.zxid, change.owner, mzxid=self.zxid)
            self.nodes[parent(change.path)].children[name] = None
            return 0
        assert known is not None
        if isinstance(change, Remove):
            del self.nodes[change.path], self.nodes[parent(change.path)].children[name]
        elif isinstance(change, Put):
            known.value = change.value
            known.version += 1
            known.mzxid = self.zxid
        return known.version

    def _undo(self, undo: list[tuple[str, Znode | None]]) -> None:
        for path, node in reversed(undo):
            name = path.rpartition("/")[2]
            if node is None:
                del self.nodes[path], self.nodes[parent(path)].children[name]
            else:
                self.nodes[path] = node
                self.nodes[parent(path)].children[name] = None

    def _fire(self, change: Change) -> None:
        fired = dict(self._watches.pop(("data", change.path), {})) if not isinstance(change, Check) else {}
        if isinstance(change, Create | Remove):
            fired |= self._watches.pop(("children", parent(change.path)), {})
        for watch in fired:
            watch()
