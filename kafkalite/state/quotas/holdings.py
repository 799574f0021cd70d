"""What principals hold at a broker: connections, groups and others, with a limit for each principal.

1. An item has one owner: the first principal that acquires it, until it is released.
2. A principal has at most `limit` items. Exempt principals are not counted.
3. Acquiring and releasing an item take the same time for any number of items. A principal without items costs nothing.

Kafka has no such limits.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Generator, Hashable
from itertools import islice
from typing import Generic, TypeVar

from kafkalite.model import Principal

Item = TypeVar("Item", bound=Hashable)
CHECK_MS = 1_000  # between two searches for ended items of a principal
CHECKED_MAX = 200  # names in one search, and in one step of those of all principals; they take 0.2 ms

Exists = Callable[[str], bool | None]


class Holdings(Generic[Item]):
    """The items of one subject, such as connections.

    Arguments:
        limit: items of one principal.
        exempt: principals without a limit.
    """

    def __init__(self, limit: int, exempt: Collection[Principal] = ()) -> None:
        self.limit = limit
        self._exempt = frozenset(exempt)
        self._owners: OrderedDict[Item, Principal] = OrderedDict()
        self._items: dict[Principal, OrderedDict[Item, None]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def count(self, principal: Principal) -> int:
        """Return how many items a principal has."""
        return len(self._items.get(principal, ()))

    def has_space(self, principal: Principal) -> bool:
        """Return whether a principal may have one more item."""
        return principal in self._exempt or self.count(principal) < self.limit

    def acquire(self, principal: Principal, item: Item) -> bool:
        """Make a principal the owner of an item, unless it has one; returns whether the limit admits it."""
        if item in self._owners:
            return True
        if not self.has_space(principal):
            return False
        if principal not in self._exempt:
            self._owners[item] = principal
            self._items.setdefault(principal, OrderedDict())[item] = None
        return True

    def release(self, item: Item) -> None:
        """An item has ended; one without an owner is ignored."""
        principal = self._owners.pop(item, None)
        if principal is None:
            return
        items = self._items[principal]
        del items[item]
        if not items:
            del self._items[principal]

    def release_ended_of(self, principal: Principal, count: int, exists: Callable[[Item], bool]) -> None:
        """Release items of a principal that have ended without a call of `release`.

        Arguments:
            principal: the owner.
            count: of the items that are checked: those that were checked, or acquired, first.
            exists: whether there is an item now.
        """
        items: OrderedDict[Item, None] = self._items.get(principal, OrderedDict())
        for item in list(islice(items, count)):
            if exists(item):
                items.move_to_end(item)
            else:
                self.release(item)

    def release_ended(self, count: int, exists: Callable[[Item], bool]) -> None:
        """Release items of all principals, as `release_ended_of`."""
        for item in list(islice(self._owners, count)):
            if exists(item):
                self._owners.move_to_end(item)
            else:
                self.release(item)


class NameHoldings:
    """Names that principals have created, such as groups, whose end is not reported.

    1. A name that exists without an owner is not counted: it was created before the start of the broker, or by an
       exempt principal.
    2. At its limit, and once per CHECK_MS, up to CHECKED_MAX names of a principal are compared with those that exist,
       and other ones the next time. `release_ended` compares all names.
    3. A name whose existence is not known is released: its shard is loading, or another broker has it.

    Arguments:
        limit, exempt: as of `Holdings`.
    """

    def __init__(self, limit: int, exempt: Collection[Principal] = ()) -> None:
        self.held: Holdings[str] = Holdings(limit, exempt)
        self._checked_ms: dict[Principal, int] = {}  # of principals at their limit

    def acquire(self, principal: Principal, name: str, exists: Exists, now_ms: int) -> bool:
        """Return whether a principal may use a name, and count it if it creates it.

        Arguments:
            principal: of the request.
            name: in the request.
            exists: whether there is a name now; None = not known.
            now_ms: the time.
        """
        if exists(name) is not False:
            return True
        self.held.release(name)  # its former owner has deleted it
        if not self.held.has_space(principal):
            self._check(principal, exists, now_ms)
        return self.held.acquire(principal, name)

    def release_ended(self, exists: Exists) -> Generator[None, None, None]:
        """Release the names of all principals that have ended; yields after each CHECKED_MAX names."""
        self._checked_ms.clear()  # those of principals that send nothing any more would be kept
        for _ in range(0, len(self.held), CHECKED_MAX):
            self.held.release_ended(CHECKED_MAX, lambda name: exists(name) is True)
            yield

    def _check(self, principal: Principal, exists: Exists, now_ms: int) -> None:
        if now_ms < self._checked_ms.get(principal, now_ms - CHECK_MS) + CHECK_MS:
            return
        self.held.release_ended_of(principal, CHECKED_MAX, lambda name: exists(name) is True)
        if self.held.has_space(principal):
            self._checked_ms.pop(principal, None)
        else:
            self._checked_ms[principal] = now_ms


class IssuedIds:
    """The producer ids that were issued to principals lately.

    Arguments:
        limit, exempt: as of `Holdings`.
        kept_ms: returns how long an id is counted, in ms.
    """

    def __init__(self, limit: int, exempt: Collection[Principal], kept_ms: Callable[[], int]) -> None:
        self.limit = limit
        self._exempt = frozenset(exempt)
        self._kept_ms = kept_ms
        self._issued: dict[Principal, deque[int]] = {}  # the times, the oldest first

    def count(self, principal: Principal, now_ms: int) -> int:
        """Return how many ids of a principal are counted."""
        times = self._issued.get(principal)
        ended_ms = now_ms - self._kept_ms()
        while times and times[0] <= ended_ms:
            times.popleft()
        if not times:
            self._issued.pop(principal, None)
            return 0
        return len(times)

    def has_space(self, principal: Principal, now_ms: int) -> bool:
        """Return whether a principal may get one more id."""
        return principal in self._exempt or self.count(principal, now_ms) < self.limit

    def acquire(self, principal: Principal, now_ms: int) -> bool:
        """Count an id; returns whether the limit admits it."""
        if not self.has_space(principal, now_ms):
            return False
        if principal not in self._exempt:
            self._issued.setdefault(principal, deque()).append(now_ms)
        return True

    def give_back(self, principal: Principal) -> None:
        """Do not count the latest id of a principal any more: it was not issued."""
        times = self._issued.get(principal)
        if times:
            times.pop()
