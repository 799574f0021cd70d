"""The quota of a client is that of the first of 8 levels: compared with Kafka's rules on random quotas."""

from __future__ import annotations

from random import Random

from kafkalite.state.quotas import client_limits
from kafkalite.state.quotas.client_limits import DEFAULT, NO_NAME, ClientLimits, Entity
from kafkalite.state.quotas.meters import RateMeter
from kafkalite.state.quotas.rates import Windows
from tests.kit.seeds import chosen_seed

WINDOWS = Windows(11, 1000)
USERS, CLIENTS = ["alice", "bob"], ["app", "web", ""]


def new_limits() -> ClientLimits[RateMeter]:
    return ClientLimits(lambda limit, _now_ms: RateMeter(limit, WINDOWS))


def naive(limits: dict[Entity, float], user: str, client: str) -> tuple[Entity, float] | None:
    """All entities that match, ordered by how specific they are: user before client id, name before default."""
    found = []
    for (of_user, of_client), limit in limits.items():
        if of_user not in (user, DEFAULT, NO_NAME) or of_client not in (client or DEFAULT, DEFAULT, NO_NAME):
            continue
        order = [user, DEFAULT, NO_NAME].index(of_user), [client or DEFAULT, DEFAULT, NO_NAME].index(of_client)
        shared = NO_NAME if of_user == NO_NAME else user, NO_NAME if of_client == NO_NAME else client
        found.append((order, shared, limit))
    return min(found)[1:] if found else None


def test_first_level_with_a_quota_applies() -> None:
    random = Random(chosen_seed())
    for _ in range(200):
        limits, known = new_limits(), {}
        for _ in range(30):
            entity = random.choice([*USERS, DEFAULT, NO_NAME]), random.choice([*CLIENTS[:2], DEFAULT, NO_NAME])
            if entity == (NO_NAME, NO_NAME):
                continue
            limit = random.choice([None, float(random.randrange(1, 100))])
            limits.set(entity, limit)
            known.pop(entity, None)
            if limit is not None:
                known[entity] = limit
            user, client = random.choice(USERS), random.choice(CLIENTS)
            expected = naive(known, user, client)
            assert limits.limit_of(user, client) == expected
            meter = limits.find(user, client, 0)
            assert (meter and meter.limit) == (expected and expected[1])
            assert bool(limits) == bool(known)


def test_clients_share_the_meter_of_their_quota() -> None:
    limits = new_limits()
    limits.set(("alice", NO_NAME), 10)
    limits.set((NO_NAME, DEFAULT), 5)
    limits.set((DEFAULT, "web"), 7)
    shared = limits.find("alice", "app", 0)
    assert shared is limits.find("alice", "web", 0) is not None, "a user quota is shared by its client ids"
    assert limits.find("bob", "app", 0) is limits.find("carol", "app", 0), "a client id quota is shared by its users"
    assert limits.find("bob", "web", 0) is not limits.find("carol", "web", 0)
    limits.set(("alice", NO_NAME), 20)
    changed = limits.find("alice", "app", 0)
    assert changed is shared and changed is not None and changed.limit == 20, "what was charged stays"


def test_number_of_meters_is_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(client_limits, "METERS_MAX", 10)
    limits = new_limits()
    limits.set((NO_NAME, DEFAULT), 5)
    used = limits.find("", "used", 0)
    assert used is not None
    for index in range(100):
        used.used_ms = 100_000 * index
        limits.find("", f"random-{index}", used.used_ms)
        assert len(limits._meters) <= 10 and len(limits._found) <= 10
    assert limits.find("", "used", used.used_ms) is used, "a meter in use is kept"


def test_long_client_ids_are_not_kept() -> None:
    """A client may send another id of 32 KiB with each request: 20,000 meters of them would take 600 MB."""
    limits = new_limits()
    limits.set((NO_NAME, DEFAULT), 5)
    limits.set((NO_NAME, "a" * 1000), 7)
    first, second = (limits.find("alice", letter * 30_000, 0) for letter in "bc")
    assert first is limits.find("bob", "b" * 30_000, 0) is not second is not None
    own = limits.find("alice", "a" * 1000, 0)
    assert own is not None and own.limit == 7
    names = [name for pair in (*limits._meters, *limits._found) for name in pair]
    assert max(len(name or "") for name in names) <= client_limits.CHARACTERS_MAX
