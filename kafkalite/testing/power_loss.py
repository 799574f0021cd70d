"""Models what a power failure leaves of a disk: a `FaultyDisk` records everything that is not yet synced.

The model, of which ext4, xfs and btrfs each show a part:
1. Data that fdatasync of a file covered survives; later changes of the file survive up to a random one. Of those either
   each is complete, or (torn) every sector of 512 bytes is old or new by itself, zeros where the file grew.
2. Names (created, renamed, removed) are on the disk after a sync of their own directory. Later ones survive either up
   to
   a random one of the whole disk (one journal: names before a synced name survive, too), or up to a random one within
   each directory (a log per directory). A rename survives or not, never in part.
3. Data and names are independent: a name may survive without its bytes, and the reverse.
4. After a failed fdatasync no later one makes the changes of that time durable: the kernel takes the pages for clean.
   They are readable until the crash. A later fdatasync counts when the whole file was written again before it.
5. A sync of the whole disk covers all files and names of that moment, or fails if any writeback has failed.
6. A failed writeback is reported once per open file, and to files opened later only until the first report (errseq_t).

Data that existed before the model first saw it counts as durable.
"""

import os
import random as randoms
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

SECTOR = 512


@dataclass(frozen=True, slots=True)
class UnsyncedChange:
    """One write or truncation: offset, number of bytes, the bytes before, the file length before."""

    offset: int
    size: int
    before: bytes
    length: int


@dataclass(slots=True, eq=False)
class Inode:
    """A file, whatever its name; `content` is kept when its name is removed."""

    changes: list[UnsyncedChange] = field(default_factory=list)
    content: bytes | None = None
    given_up: bool = False
    given_up_count: int = 0
    synced_count: int = 0
    writeback_errors: int = 0
    writeback_reported: bool = True

    @property
    def count(self) -> int:
        """Number of changes so far."""
        return self.synced_count + len(self.changes)

    def synced(self, count: int) -> None:
        """Record that the first `count` changes are on the disk."""
        self.given_up = self.given_up and not self._written_again(count)
        if not self.given_up and count > self.synced_count:
            del self.changes[: count - self.synced_count]
            self.synced_count = count

    def give_up(self) -> None:
        """Record that no later sync makes the changes so far durable."""
        self.given_up, self.given_up_count = True, self.count

    def _written_again(self, count: int) -> bool:
        """Whether the whole file was written from its beginning on, after it was given up and before change `count`."""
        end, size = -1, 0
        for change in self.changes[self.given_up_count - self.synced_count : max(0, count - self.synced_count)]:
            if not change.offset:
                end, size = 0, change.length if change.size else 0
            end = end + change.size if change.offset == end else -1
            if end >= size:
                return True
        return False

    def after_crash(self, current: bytes, random: randoms.Random, torn: bool) -> tuple[bytes, int]:
        """Return (content after a crash, number of lost changes)."""
        content, made = self._undone(current)
        kept = random.randint(0, len(made))
        for change, data in made[:kept]:
            _apply(content, change, data, random if torn else None)
        return bytes(content), len(made) - kept

    def _undone(self, current: bytes) -> tuple[bytearray, list[tuple[UnsyncedChange, bytes]]]:
        """Return the synced content, and every later change with its bytes."""
        content = bytearray(current)
        made = []
        for change in reversed(self.changes):
            written = bytes(content[change.offset : change.offset + change.size])
            made.append((change, written))
            content[change.offset : change.offset + len(change.before)] = change.before
            del content[change.length :]
            content.extend(bytes(change.length - len(content)))
        return content, made[::-1]


def _apply(content: bytearray, change: UnsyncedChange, data: bytes, torn: randoms.Random | None) -> None:
    if not change.size:
        del content[change.offset :]
        return
    end = change.offset + len(data)
    content.extend(bytes(max(0, end - len(content))))
    for start in range(change.offset - change.offset % SECTOR, end, SECTOR):
        if torn is None or torn.random() < 0.5:
            first, last = max(start, change.offset), min(start + SECTOR, end)
            content[first:last] = data[first - change.offset : last - change.offset]


@dataclass(slots=True, eq=False)
class Folder:
    """A directory: its current names, and the names that survive a crash for certain."""

    live: dict[str, "Inode | Folder"] = field(default_factory=dict)
    durable: dict[str, "Inode | Folder"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """The number of name changes so far, and of the changes of each file."""

    number: int
    counts: dict[Inode, int]


Node = Inode | Folder
Part = tuple[Folder, str, Node | None]


@dataclass(frozen=True, slots=True)
class Naming:
    """One change of names: what each name refers to afterwards."""

    number: int
    parts: tuple[Part, ...]

    @property
    def folders(self) -> list[Folder]:
        return [part[0] for part in self.parts]

    def touches(self, folder: Folder) -> bool:
        return folder in self.folders

    def make_durable(self) -> None:
        for folder, name, node in self.parts:
            _set(folder.durable, name, node)


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class UnsyncedState:
    """The names and files of one disk, as far as they were accessed; thread-safe."""

    def __init__(self) -> None:
        self._root = Folder()
        self._pending: list[Naming] = []
        self.number = 0
        self._durable_until = 0
        self._lock = threading.RLock()

    # What happens.

    def inode(self, path: str) -> Inode:
        """Return the file at `path`, which exists."""
        with self._lock:
            node = self._find(path)
            assert isinstance(node, Inode), path
            return node

    def created(self, path: str, *, folder: bool = False) -> None:
        """Record that a file or directory was created at `path`."""
        self._note((path, Folder() if folder else Inode()))

    def keep(self, path: str, *, contents: bool = True) -> None:
        """Record everything at `path` before the name is removed or (without `contents`) renamed."""
        with self._lock:
            for below, node in list(self._walk_disk(path, self._find(path))):
                if contents and isinstance(node, Inode):
                    node.content = _read(below)

    def removed(self, path: str) -> None:
        """Record that `path` and everything below was removed; `keep` came before."""
        with self._lock:
            node = self._find(path, gone=True)
            for name in list(node.live) if isinstance(node, Folder) else []:
                self.removed(os.path.join(path, name))
            self._note((path, None))

    def renamed(self, old: str, new: str) -> None:
        """Record a rename; `keep` came before, for both names."""
        with self._lock:
            self._note((old, None), (new, self._find(old, gone=True)))

    def synced(self, path: str, number: int) -> None:
        """Record a sync of the directory `path`, which covers the first `number` name changes of the disk."""
        with self._lock:
            folder = self._find(path)
            folders = [folder] if isinstance(folder, Folder) else []
            confirmed: list[Naming] = []
            for naming in reversed(self._pending[:]):
                if naming.number <= number and any(naming.touches(each) for each in folders):
                    folders += naming.folders  # what was moved between two is on the disk in both
                    self._pending.remove(naming)
                    self._durable_until = max(self._durable_until, naming.number)
                    confirmed.insert(0, naming)
            for naming in confirmed:
                naming.make_durable()

    def moment(self) -> "Moment":
        """Return the current state, for `synced_all`."""
        with self._lock:
            nodes = {node for naming in self._pending for _, _, node in naming.parts if isinstance(node, Inode)}
            nodes.update(node for _, node in _walk(os.sep, self._root) if isinstance(node, Inode))
            return Moment(self.number, {node: node.count for node in nodes})

    def synced_all(self, moment: "Moment") -> bool:
        """Record a sync of everything up to a moment; returns False, without effect, if a writeback has failed."""
        with self._lock:
            if any(inode.given_up for inode in moment.counts):
                return False
            for inode, count in moment.counts.items():
                inode.synced(count)
            for naming in [naming for naming in self._pending if naming.number <= moment.number]:
                self._pending.remove(naming)
                self._durable_until = max(self._durable_until, naming.number)
                naming.make_durable()
            return True

    # The crash.

    def crash(self, random: randoms.Random, torn: bool) -> int:
        """Change the real files to what a power failure may leave; returns the number of lost changes and names."""
        with self._lock:
            live = dict(_walk(os.sep, self._root))
            kept = self._survivors(random)
            lost = len(self._pending) - len(kept)
            for naming in kept:
                naming.make_durable()
            left = dict(_walk(os.sep, self._root, durable=True))
            where = {node: path for path, node in live.items()}
            contents: dict[str, bytes] = {}
            for path, node in left.items():
                if isinstance(node, Inode) and (node.changes or live.get(path) is not node):
                    current = _read(where[node]) if node in where else node.content or b""
                    contents[path], missing = node.after_crash(current, random, torn)
                    lost += missing
            _make_real(live, left, contents)
            self._root, self._pending = Folder(), []
            return lost

    def _survivors(self, random: randoms.Random) -> list[Naming]:
        if random.random() < 0.5:
            sure = sum(naming.number < self._durable_until for naming in self._pending)
            return self._pending[: random.randint(sure, len(self._pending))]
        left: dict[Folder, int] = {}
        for folder in (folder for naming in self._pending for folder in dict.fromkeys(naming.folders)):
            left[folder] = left.get(folder, 0) + 1
        for folder, count in left.items():
            left[folder] = random.randint(0, count)
        kept = []
        for naming in self._pending:
            survives = all(left[folder] for folder in naming.folders)
            if survives:
                kept.append(naming)
            for folder in set(naming.folders):  # where one is lost, nothing later of these directories may survive
                left[folder] = left[folder] - 1 if survives else 0
        return kept

    # Names.

    def _note(self, *parts: tuple[str, Node | None]) -> None:
        with self._lock:
            self.number += 1
            found: list[Part] = []
            for path, node in parts:
                above = self._find(os.path.dirname(os.path.abspath(path)))
                assert isinstance(above, Folder), path
                _set(above.live, os.path.basename(path), node)
                found.append((above, os.path.basename(path), node))
            self._pending.append(Naming(self.number, tuple(found)))

    def _find(self, path: str, *, gone: bool = False) -> Node | None:
        """Return the node at `path`; an unknown one is durable. `gone`: its name was just removed from the disk."""
        node: Node | None = self._root
        names = os.path.abspath(path).split(os.sep)
        for at, name in enumerate(names):
            if not isinstance(node, Folder):
                return None
            if name:
                node = node.live.get(name) or _child(node, name, os.sep.join(names[: at + 1]), gone)
        return node

    def _walk_disk(self, path: str, node: Node | None) -> Iterator[tuple[str, Node]]:
        """Yield a node and everything below it on the disk."""
        if node is not None:
            yield path, node
        for name in sorted(os.listdir(path)) if isinstance(node, Folder) else []:
            below = os.path.join(path, name)
            yield from self._walk_disk(below, self._find(below))


def _child(folder: Folder, name: str, path: str, gone: bool) -> Node | None:
    """Return the node of a name that was not accessed before, if it is on the disk."""
    if gone or not os.path.lexists(path):
        return None
    node = folder.live[name] = Folder() if os.path.isdir(path) else Inode()
    folder.durable.setdefault(name, node)
    return node


def _walk(path: str, node: Node | None, *, durable: bool = False) -> Iterator[tuple[str, Node]]:
    if node is not None:
        yield path, node
    if isinstance(node, Folder):
        for name, below in (node.durable if durable else node.live).items():
            yield from _walk(os.path.join(path, name), below, durable=durable)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _make_real(live: dict[str, Node], left: dict[str, Node], contents: dict[str, bytes]) -> None:
    for path, node in live.items():
        if left.get(path) is not node and os.path.lexists(path):
            if isinstance(node, Folder):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    for path, node in left.items():
        if isinstance(node, Folder):
            os.makedirs(path, exist_ok=True)
        elif path in contents:
            with open(path, "wb") as file:
                file.write(contents[path])
