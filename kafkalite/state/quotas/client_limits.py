"""The quotas of one subject by user and client id, and the meters of the clients that they limit.

The first quota of these 8 levels applies (KIP-55):

    1. a user and a client id            5. the default user and the default client id
    2. a user and the default client id  6. the default user
    3. a user                            7. a client id
    4. the default user and a client id  8. the default client id

The levels of users alone have one meter per user, those of client ids alone one per client id, others one per pair.
All connections that share a meter share the quota, at each broker.

Deviation: a request without a client id has the quotas of the default client id; in Kafka it has none of them.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

METERS_MAX = 20_000  # a meter takes up to 2 KiB; client ids may be random
KEPT_MS = 60_000  # since its last use, a meter is not removed for another one
SECOND_CHANCES = 8
CHARACTERS_MAX = 250  # of a client id that is kept; Kafka's protocol allows 32 KiB
NO_NAME = ""  # the type is not part of the entity
DEFAULT = None

Name = str | None
Entity = tuple[Name, Name]
"""User and client id: NO_NAME, DEFAULT (None) or a name."""


class Meter(Protocol):
    """`meters.RateMeter` and `BucketMeter`."""

    used_ms: int

    @property
    def limit(self) -> float: ...
    def set_limit(self, limit: float, now_ms: int) -> None: ...


M = TypeVar("M", bound=Meter)


class ClientLimits(Generic[M]):
    """The limits of one subject, such as `producer_byte_rate`.

    Arguments:
        new_meter: returns a meter for a limit, and the time in ms.
    """

    def __init__(self, new_meter: Callable[[float, int], M]) -> None:
        self._new_meter = new_meter
        self._limits: dict[Entity, float] = {}
        self._meters: dict[Entity, M] = {}
        self._found: dict[tuple[str, str], M | None] = {}  # by user and client id

    def __bool__(self) -> bool:
        """Whether there are limits."""
        return bool(self._limits)

    def set(self, entity: Entity, limit: float | None) -> None:
        """Set the limit of an entity; None = it has none."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self._found.clear()
        if not self._limits:
            self._meters.clear()

    def find(self, user: str, client_id: str, now_ms: int) -> M | None:
        """Return the meter of a client, None if no quota limits it.

        Arguments:
            user: name of its principal.
            client_id: of the request, "" without one.
            now_ms: the time.
        """
        client = user, kept_name(client_id)
        try:
            return self._found[client]
        except KeyError:
            found = self._find(user, client_id, now_ms)
            if len(self._found) >= METERS_MAX:
                self._found.clear()
            self._found[client] = found
            return found

    def limit_of(self, user: str, client_id: str) -> tuple[Entity, float] | None:
        """Return the limit of a client, and the user and client id that share its meter; None without one."""
        of_client = client_id or DEFAULT
        for entity in (
            (user, of_client),
            (user, DEFAULT),
            (user, NO_NAME),
            (DEFAULT, of_client),
            (DEFAULT, DEFAULT),
            (DEFAULT, NO_NAME),
            (NO_NAME, of_client),
            (NO_NAME, DEFAULT),
        ):
            limit = self._limits.get(entity)
            if limit is not None:
                shared = NO_NAME if entity[0] == NO_NAME else user, NO_NAME if entity[1] == NO_NAME else client_id
                return shared, limit
        return None

    def _find(self, user: str, client_id: str, now_ms: int) -> M | None:
        found = self.limit_of(user, client_id)
        if found is None:
            return None
        (sharing_user, sharing_client), limit = found
        key = sharing_user, sharing_client and kept_name(sharing_client)
        meter = self._meters.get(key)
        if meter is None:
            self._free_one(now_ms)
            meter = self._meters[key] = self._new_meter(limit, now_ms)
            meter.used_ms = now_ms
        elif meter.limit != limit:
            meter.set_limit(limit, now_ms)
        return meter

    def _free_one(self, now_ms: int) -> None:
        """Remove a meter if there are too many: one of the oldest, if possible one that was not used lately."""
        if len(self._meters) < METERS_MAX:
            return
        self._found.clear()
        for _ in range(SECOND_CHANCES):
            key = next(iter(self._meters))
            meter = self._meters.pop(key)
            if now_ms - meter.used_ms > KEPT_MS:
                return
            self._meters[key] = meter
        del self._meters[next(iter(self._meters))]


def kept_name(client_id: str) -> str:
    """Return what stands for a client id in memory: itself, or the digest of a long one."""
    if len(client_id) <= CHARACTERS_MAX:
        return client_id
    return blake2b(client_id.encode(), digest_size=32).hexdigest()
