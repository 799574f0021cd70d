"""A year of flights for a group of three libraries: a member dies, one joins, the broker is killed, July comes again.

Every step waits for what the members have done, never for the clock. `AGAINST=kafka` runs it up to the rewind of the
living group, which no other broker does: it must say so. The short form has four months of the year.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner

from kafkalite.cli.main import main
from tests.fix_torture import is_long
from tests.kit.brokers import AGAINST, IS_KAFKALITE, Broker, broker_under_test
from tests.kit.clients.confluent import Delivery, Outgoing, RecordProducer, create_topics
from tests.kit.clients.groups import committed, doomed, lost_sockets, objects, one_line, partitions_of, read_history
from tests.kit.clients.members import AIO, EAGER, PYTHON, REFUSED, Crowd, Member, Seen, Wish
from tests.kit.flights import FLIGHTS, SHORT_FLIGHTS, flights, today
from tests.kit.foreign_warnings import FOREIGN_WARNINGS
from tests.kit.isolated import Isolated

TOPIC = "flights"
GROUP = "controllers"
PARTITIONS = 12
ALL_PARTITIONS = partitions_of(TOPIC, PARTITIONS)
JULY = datetime(2013, 7, 1, tzinfo=UTC)
STORY_S = 300.0
FLUSH_S = 200.0  # less than a call of an isolated client may take
AT_ONCE = 1_000  # flights that are handed to the producer together
SETTINGS = {"group.min.session.timeout.ms": "500"}
SESSION_MS = 60_000  # longer than any broker needs to come back; who is killed has a short one

pytestmark = [
    *map(pytest.mark.filterwarnings, FOREIGN_WARNINGS),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Hours = dict[Seen, int]  # where each flight lies, and its hour in ms


class Departures:
    """Sends so many flights in time order, keyed by tail number, and notes where each one came to lie."""

    def __init__(self, address: str, count: int) -> None:
        year = flights(count)
        self.count = count
        self._hour = {flight.row: flight.timestamp_ms for flight in year}
        self._schedule = iter(year if IS_KAFKALITE else today(year))
        self.landed: Hours = {}
        settings = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": FLIGHTS,
            "reconnect.backoff.max.ms": 200,
        }
        self._producer = Isolated(RecordProducer, settings)  # in a process that can be killed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def send(self, share: int = 1) -> None:
        """The next ones, up to this part of all; returns once the producer has them."""
        left = itertools.islice(self._schedule, self.count // share)
        while some := [Outgoing(f.row, f.value, f.key, -1, f.timestamp_ms) for f in itertools.islice(left, AT_ONCE)]:
            self._note(self._producer.send(TOPIC, some))

    def _note(self, delivered: Sequence[Delivery]) -> None:
        for each in delivered:
            assert each.error == "", each.error
            self.landed[Seen(TOPIC, each.partition, each.offset)] = self._hour[each.number]

    def land(self) -> Hours:
        """Wait until all that were sent are acknowledged; where all of them are until now."""
        left, delivered = self._producer.flush(FLUSH_S)
        self._note(delivered)
        assert left == 0, "flights in the air"
        return self.landed


class Radar:
    """What all consumers have read from now on, the dead ones too, and which flights are still to come."""

    def __init__(self, crowd: Crowd) -> None:
        self.history: list[Seen] = []
        self.left: set[Seen] = set()
        self._crowd = crowd
        self._taken = {member: len(member.seen) for member in crowd.members}

    def expect(self, flights_to_come: Iterable[Seen]) -> None:
        self.left = set(flights_to_come).difference(self.history)

    def take(self, fresh: list[Seen]) -> None:
        self.history += fresh
        self.left.difference_update(fresh)

    def look(self) -> None:
        """Add the records that the running members have read since."""
        for member in self._crowd.members:
            taken = self._taken.get(member, 0)
            fresh = member.seen[taken:]
            self._taken[member] = taken + len(fresh)
            self.take(fresh)

    def follow(self, done: Callable[[], object], what: str) -> None:
        """Have the members commit again and again, until it is so."""
        end = time.monotonic() + STORY_S
        self.look()
        while not done():
            assert time.monotonic() < end, f"not in time: {what}; {len(self.left)} flights are left"
            for member in self._crowd.members:
                attempt(member)
            self._crowd.check()
            self.look()


def attempt(member: Member) -> None:
    """Commit, or not: records read since the last accepted commit are read again by another member."""
    try:
        member.commit()
    except REFUSED:
        return


def days(hours: Iterable[int]) -> Counter[str]:
    """How many flights there were on each day, by UTC."""
    return Counter(datetime.fromtimestamp(hour_ms / 1000, UTC).date().isoformat() for hour_ms in hours)


def assert_delivered(history: list[Seen], wanted: Hours, hours: Hours) -> None:
    """Each wanted flight was read at least once, and no other one; counted by day for a failure that can be read."""
    assert days(hours[seen] for seen in set(history)) == days(wanted.values())
    assert set(history) == wanted.keys()


@pytest.mark.torture
def test_flights_are_consumed_completely_by_a_group(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    count = FLIGHTS if is_long(pytestconfig) else SHORT_FLIGHTS
    with broker_under_test(tmp_path / "broker", SETTINGS) as broker, lost_sockets():
        create_topics(broker.address, TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        with Crowd(broker.address) as crowd, Departures(broker.address, count) as departures:
            radar = Radar(crowd)
            a_member_dies(crowd, departures, radar, tmp_path / "history")
            one_joins(crowd, departures, radar)
            the_broker_dies(broker, departures, radar)
            hours = departures.land()
            assert len(hours) == count
            assert_delivered(radar.history, hours, hours)
            july_comes_again(crowd, hours)
        assert broker.stop() == broker.clean_exit


def a_member_dies(crowd: Crowd, departures: Departures, radar: Radar, history: Path) -> None:
    """kafka-python is killed while it reads and commits; what it had read it had noted before each commit."""
    departures.send(3)
    radar.expect(departures.land())
    for kind in (EAGER, AIO):
        crowd.join(kind, Wish(GROUP, (TOPIC,), session_ms=SESSION_MS))
    with doomed(PYTHON, crowd.address, GROUP, TOPIC, history) as third:
        assert third.stdout is not None
        assert [third.stdout.readline() for _ in range(2)] == ["assigned\n", "committed\n"]
        third.kill()
    seen = read_history(history)
    radar.take(seen)
    assert seen
    assert max(committed(crowd.address, GROUP, ALL_PARTITIONS).values()) > 0


def one_joins(crowd: Crowd, departures: Departures, radar: Radar) -> None:
    """Another kafka-python finds its place and reads."""
    newcomer = crowd.join(PYTHON, Wish(GROUP, (TOPIC,), session_ms=SESSION_MS))
    departures.send(3)
    radar.expect(departures.land())
    radar.follow(lambda: newcomer.seen, "the newcomer's first flights")


def the_broker_dies(broker: Broker, departures: Departures, radar: Radar) -> None:
    """While flights are in the air and others unread; it comes back, and all are read and committed."""
    before = len(departures.landed)
    departures.send(6)
    radar.expect(departures.land())
    last = set(list(departures.landed)[before:])
    radar.follow(lambda: not last <= radar.left, "the first flights of this part")
    broker.freeze()
    departures.send()
    broker.kill()
    broker.start()
    radar.expect(departures.land())
    radar.follow(lambda: not radar.left, "all flights")
    ends = Counter((topic, partition) for topic, partition, _ in departures.landed)
    radar.follow(lambda: committed(broker.address, GROUP, ALL_PARTITIONS) == ends, "all is committed")


def july_comes_again(crowd: Crowd, hours: Hours) -> None:
    """No member restarts: all flights from July on are delivered again and committed, and none from before."""
    again = {seen: hour_ms for seen, hour_ms in hours.items() if hour_ms >= JULY.timestamp() * 1000}
    args = ["group", "rewind", GROUP, "--to", JULY.isoformat(), "--topic", TOPIC, "--json", "-b", crowd.address]
    radar = Radar(crowd)
    radar.expect(again)
    done = CliRunner().invoke(main, args)
    if AGAINST == "kafka":
        assert (done.exit_code, "cannot move a group with members" in one_line(done)) == (2, True)
        return
    assert done.exit_code == 0, done.output
    ends = Counter((topic, partition) for topic, partition, _ in hours)
    firsts = {
        topic_partition: min(seen.offset for seen in again if seen[:2] == topic_partition)
        for topic_partition in ALL_PARTITIONS
    }
    moved = {(each["topic"], each["partition"]): (each["prior_offset"], each["new_offset"]) for each in objects(done)}
    assert moved == {
        topic_partition: (ends[topic_partition], firsts[topic_partition]) for topic_partition in ALL_PARTITIONS
    }
    radar.follow(lambda: not radar.left, "all flights from July on")
    radar.follow(lambda: committed(crowd.address, GROUP, ALL_PARTITIONS) == ends, "all is committed again")
    assert_delivered(radar.history, again, hours)
