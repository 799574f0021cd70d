"""Stories of groups that run with members of all clients."""

from __future__ import annotations

from dataclasses import replace

from tests.compat.conftest import unused_name
from tests.kit.brokers import AGAINST
from tests.kit.clients.admin import ConfluentAdmin
from tests.kit.clients.confluent import create_topics
from tests.kit.clients.groups import (
    EACH,
    PARTITIONS,
    Run,
    commit_all,
    committed,
    evenly_shared,
    objects,
    one_line,
    partitions_of,
    write,
)
from tests.kit.clients.members import Crowd, Kind, Seen, Wish

MEMBERS = 3


def restarted_one_by_one(crowd: Crowd, kind: Kind, topic: str, *, rereads: bool = False) -> None:
    """Members of a running group go and come back one after the other; each record is read, and none twice.

    Arguments:
        crowd: starts the members.
        kind: of the members.
        topic: that they read.
        rereads: the client may ignore a committed offset and read records again.
    """
    wish, everything = Wish(unused_name("rolling"), (topic,)), partitions_of(topic)
    members = [crowd.join(kind, wish) for _ in range(MEMBERS)]
    crowd.wait(lambda: evenly_shared(members, everything), "an even share")
    for step in range(MEMBERS):
        crowd.read(write(crowd.address, topic, step * EACH), *crowd.members)
        commit_all(members, everything, (step + 1) * EACH)
        members.pop(0).leave()
        members.append(crowd.join(kind, wish))
        crowd.wait(lambda: evenly_shared(members, everything), "an even share again")
    last = write(crowd.address, topic, MEMBERS * EACH)
    crowd.read(last, *members)
    history = [seen for member in crowd.members for seen in member.seen]
    assert rereads or sorted(history) == sorted(set(history)), "none is read again"
    assert len(set(history)) == (MEMBERS + 1) * PARTITIONS * EACH


def what_comes_later(crowd: Crowd, kind: Kind, first: str) -> None:
    """Two members by a pattern; their topic of two partitions grows, and another one that matches is made."""
    wish = Wish(unused_name("later"), pattern=f"^{first}.*")
    members = [crowd.join(kind, wish)]
    crowd.share(partitions_of(first, 2), *members)
    members.append(crowd.join(kind, wish))
    crowd.share(partitions_of(first, 2), *members)
    with ConfluentAdmin(crowd.address) as admin:
        admin.grow(first, 4)
    other = f"{first}-too"
    create_topics(crowd.address, other, f"not-{first}", partitions=2)
    crowd.share(partitions_of(first, 4) + partitions_of(other, 2), *members)


def rewound_while_active(crowd: Crowd, kind: Kind, topic: str, group: Run) -> None:
    """Two members, one of them static, have committed everything; their group is rewound without a restart.

    Apache Kafka refuses to.
    """
    records, everything = write(crowd.address, topic), partitions_of(topic)
    wish = Wish(unused_name("rewound"), (topic,))
    members = [crowd.join(kind, wish), crowd.join(kind, replace(wish, instance="one"))]
    crowd.share(everything, *members)
    commit_all(members, everything)
    args = ("rewind", wish.group, "--topic", topic, "--to", "2", "--json")
    if AGAINST == "kafka":
        assert "does not move a living group" in one_line(group(*args, code=2))
        return
    read_before = [len(member.seen) for member in members]
    moved = [(each["prior_offset"], each["new_offset"]) for each in objects(group(*args))]
    assert moved == [(EACH, 2)] * PARTITIONS

    def again() -> set[Seen]:
        return {seen for member, before in zip(members, read_before, strict=True) for seen in member.seen[before:]}

    wanted = {record for record in records if record.offset >= 2}
    crowd.wait(lambda: wanted <= again(), f"{len(wanted)} records are read again")
    assert again() == wanted, "nothing below the place that it was rewound to"
    crowd.share(everything, *members)
    commit_all(members, everything)
    crowd.read(write(crowd.address, topic, EACH), *members)


def anothers_partitions_are_not_committed(crowd: Crowd, kind: Kind, topic: str) -> None:
    """One of two KIP-848 members commits for all partitions: its own are taken, the other's are not, and both go on.

    The request fails with STALE_MEMBER_EPOCH. Apache Kafka takes all of them.
    """
    wish, everything = Wish(unused_name("commit"), (topic,)), partitions_of(topic)
    first, second = crowd.join(kind, wish), crowd.join(kind, wish)
    crowd.share(everything, first, second)
    crowd.read(write(crowd.address, topic), first, second)
    commit_all([first, second], everything)
    had = first.assigned, second.assigned
    refused = first.set(dict.fromkeys(everything, 2))
    stands = committed(crowd.address, wish.group, everything)
    if AGAINST == "kafka":
        assert (refused, stands) == (None, dict.fromkeys(everything, 2))
    else:
        assert refused is not None and "epoch" in refused
        assert stands == {
            topic_partition: 2 if topic_partition in first.assigned else EACH for topic_partition in everything
        }
    more = write(crowd.address, topic, EACH)
    crowd.read(more, first, second)
    commit_all([first, second], everything, 2 * EACH)
    assert had == (first.assigned, second.assigned)
    seen = [*first.seen, *second.seen]
    assert len(seen) == len(set(seen)), "nobody joined anew"
