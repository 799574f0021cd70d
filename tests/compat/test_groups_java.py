"""Java consumers of 4.4 and 3.9 in groups, alone and with other clients, and kafka-consumer-groups beside them.

Each version runs in one Java process for all tests of this module.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.group_stories import (
    anothers_partitions_are_not_committed,
    restarted_one_by_one,
    rewound_while_active,
    what_comes_later,
)
from tests.kit import jvm
from tests.kit.brokers import wait_until
from tests.kit.clients.groups import EACH, NOTHING, PARTITIONS, Run, commit_all, committed, partitions_of, write
from tests.kit.clients.java import JAVA_VERSIONS
from tests.kit.clients.java_members import HOW, JavaProcess
from tests.kit.clients.members import AIO, CONSUMER, COOPERATIVE, EAGER, PYTHON, Crowd, Kind, Wish

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient, MemberToRemove

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka's consumers: {jvm.java_missing()}"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


# Each version's tests run in one worker, which starts Java once for them.
VERSIONS = [
    pytest.param(each, marks=pytest.mark.xdist_group(f"java-{each}"), id=f"kafka-{each}") for each in JAVA_VERSIONS
]


every_how = pytest.mark.parametrize("how", HOW)


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest, group_address: str) -> Iterator[JavaProcess]:
    """Java's consumers and tools, of the current and the previous major version."""
    with JavaProcess(request.param, group_address) as process:
        yield process


@pytest.mark.parametrize(
    ("how", "other"),
    [
        pytest.param("range", EAGER, id="range"),
        pytest.param("cooperative-sticky", COOPERATIVE, id="cooperative-sticky"),
        pytest.param("consumer", CONSUMER, id="consumer"),
    ],
)
def test_java_members_join_and_leave(
    group_address: str, crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic, how: str, other: Kind
) -> None:
    """Two Java consumers share; librdkafka joins them; each leaves; nothing that was committed is read again."""
    topic, group = new_group_topic(PARTITIONS), unused_name("java")
    records, everything, wish = write(group_address, topic), partitions_of(topic), Wish(group, (topic,))
    first, second = crowd.join(java.kind(how), wish), crowd.join(java.kind(how), wish)
    crowd.share(everything, first, second)
    third = crowd.join(other, wish)
    crowd.share(everything, first, second, third)
    crowd.read(records, first, second, third)
    first.leave()
    third.leave()
    crowd.share(everything, second)
    commit_all([second], everything)
    second.leave()
    more = write(group_address, topic, EACH)
    last = crowd.join(java.kind(how), wish)
    crowd.read(more, last)
    assert set(last.seen) == set(more)


def test_java_and_python_clients_share_a_group(crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic) -> None:
    """Java leads a group of every library, then has to follow."""
    topic, group = new_group_topic(PARTITIONS), unused_name("mixed-java")
    everything, wish = partitions_of(topic), Wish(group, (topic,))
    for kinds in ((java.kind("range"), EAGER, AIO, PYTHON), (PYTHON, AIO, EAGER, java.kind("range"))):
        members = [crowd.join(kinds[0], wish)]
        crowd.share(everything, *members)
        members += [crowd.join(kind, wish) for kind in kinds[1:]]
        crowd.share(everything, *members)
        for member in members:
            member.leave()


@every_how
def test_static_java_members(crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic, how: str) -> None:
    """The one that comes back has its partitions again; of two with one name, one is fenced."""
    topic, group = new_group_topic(PARTITIONS), unused_name("static-java")
    kind, everything = java.kind(how), partitions_of(topic)
    one, two = (Wish(group, (topic,), instance=name) for name in ("one", "two"))
    first, second = crowd.join(kind, one), crowd.join(kind, two)
    crowd.share(everything, first, second)
    was = first.assigned
    first.leave()
    again = crowd.join(kind, one)
    crowd.wait(lambda: again.assigned, "partitions for the one that came back")
    assert again.assigned == was
    crowd.share(everything, again, second)
    rival = crowd.join(kind, one)
    if how == "consumer":
        assert "UnreleasedInstanceIdException" in str(crowd.refused(rival))
    else:
        assert "FencedInstanceIdException" in str(crowd.refused(again))


@every_how
def test_rolling_restart_of_java_members(crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic, how: str) -> None:
    """Each record is read once.

    Java's consumer of 3.9 ignores the committed offset of a partition that is assigned while it fetches those of others
    (KAFKA-17674, fixed in 4.0).
    """
    rereads = how == "consumer" and java.version.startswith("3.")
    restarted_one_by_one(crowd, java.kind(how), new_group_topic(PARTITIONS), rereads=rereads)


@every_how
def test_java_members_get_later_topics_and_partitions(
    crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic, how: str
) -> None:
    """Partitions added under a running group, and topics that match its pattern, by the broker's regex if Java can."""
    what_comes_later(crowd, java.kind(how), new_group_topic(2))


@every_how
def test_rewind_of_a_java_group_with_members(
    crowd: Crowd, java: JavaProcess, group: Run, new_group_topic: MakeTopic, how: str
) -> None:
    """As with librdkafka and the others."""
    rewound_while_active(crowd, java.kind(how), new_group_topic(PARTITIONS), group)


def test_java_commit_of_a_foreign_partition_is_rejected(
    crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic
) -> None:
    """As with librdkafka: a CommitFailedException for the whole commit, and both members go on."""
    anothers_partitions_are_not_committed(crowd, java.kind("consumer"), new_group_topic(PARTITIONS))


def rows(said: str) -> list[dict[str, str]]:
    """A table of the tool: the first line with GROUP in it names the columns."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    (head,) = [at for at, words in enumerate(lines) if words[0] in ("GROUP", "TOPIC")]
    return [dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :]]


@every_how
def test_consumer_groups_tool(
    group_address: str, crowd: Crowd, java: JavaProcess, new_group_topic: MakeTopic, tmp_path: Path, how: str
) -> None:
    """List, describe with lag, reset in each way, export and import, delete; a group with members is protected."""
    topic, group = new_group_topic(2), unused_name("tool")
    everything, these = partitions_of(topic, 2), ("--group", group)
    write(group_address, topic, partitions=2)
    member = crowd.join(java.kind(how), Wish(group, (topic,), instance="one"))
    crowd.share(everything, member)
    commit_all([member], everything)
    write(group_address, topic, EACH, partitions=1)

    assert group in java.groups("--list").split()
    kind = "Consumer" if how == "consumer" else "Classic"
    (listed,) = [row for row in rows(java.groups("--list", "--state", "--type")) if row["GROUP"] == group]
    assert (listed["TYPE"], listed["STATE"]) == (kind, "Stable")
    described = rows(java.groups("--describe", *these))
    assert {
        (row["TOPIC"], int(row["PARTITION"]), row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["HOST"])
        for row in described
    } == {(topic, 0, "5", "10", "5", "/127.0.0.1"), (topic, 1, "5", "5", "0", "/127.0.0.1")}
    (shown,) = rows(java.groups("--describe", *these, "--members", "--verbose"))
    assert (shown["GROUP-INSTANCE-ID"], shown["HOST"], shown["#PARTITIONS"]) == ("one", "/127.0.0.1", "2")
    assert "Stable" in java.groups("--describe", *these, "--state")

    reset = ("--reset-offsets", *these, "--topic", topic)
    assert "inactive, but the current state is Stable" in java.groups(*reset, "--to-earliest", "--execute")
    assert "GroupNotEmptyException" in java.groups("--delete", *these)
    assert "GroupSubscribedToTopic" in java.groups("--delete-offsets", *these, "--topic", topic)
    member.leave()
    if how == "consumer":  # it only steps aside: its session has to end
        wait_until(lambda: "Empty" in java.groups("--describe", *these, "--state"), "the end of the session")
    else:
        remove_static(group_address, group, "one")

    java.groups(*reset, "--shift-by", "-2", "--execute")
    assert committed(group_address, group, everything) == {(topic, 0): 3, (topic, 1): 3}
    plan = tmp_path / "plan.csv"
    plan.write_text(java.groups(*reset, "--to-current", "--dry-run", "--export"))
    assert sorted(plan.read_text().split()) == [f"{topic},0,3", f"{topic},1,3"]
    java.groups(*reset, "--to-latest", "--execute")
    assert committed(group_address, group, everything) == {(topic, 0): 2 * EACH, (topic, 1): EACH}
    java.groups("--reset-offsets", *these, "--from-file", str(plan), "--execute")
    assert committed(group_address, group, everything) == {(topic, 0): 3, (topic, 1): 3}

    assert "Request succeed" in java.groups("--delete-offsets", *these, "--topic", f"{topic}:0")
    assert committed(group_address, group, everything) == {(topic, 0): NOTHING, (topic, 1): 3}
    assert "successful" in java.groups("--delete", *these)
    assert group not in java.groups("--list").split()


def cells(text: str) -> list[list[str]]:
    """Lines of CSV in any order; long names stand in quotes in Kafka's."""
    return sorted(filter(None, csv.reader(text.splitlines())))


def test_offsets_are_exported_and_imported_by_kafkas_tool(
    group_address: str, java: JavaProcess, group: Run, new_group_topic: MakeTopic, tmp_path: Path
) -> None:
    """What our command exports its tool takes, and the other way round; for one group, and for several."""
    topic, other, file = new_group_topic(2), new_group_topic(), tmp_path / "offsets.csv"
    write(group_address, topic, partitions=2)
    write(group_address, other, partitions=1)
    one, two = (unused_name(stem) for stem in ("one", "two"))
    lines = {name: [f"{topic},0,{n}", f"{topic},1,{n + 1}", f"{other},0,{n + 2}"] for n, name in enumerate((one, two))}
    everything = [*partitions_of(topic, 2), (other, 0)]

    def forget() -> None:
        for name in (one, two):
            group("reset", name, "--to", "latest", *(part for each in (topic, other) for part in ("--topic", each)))

    def stands() -> bool:
        found = {name: committed(group_address, name, everything) for name in (one, two)}
        return found == {
            name: dict(zip(everything, (n, n + 1, n + 2), strict=True)) for n, name in enumerate((one, two))
        }

    for name in (one, two):
        group("offsets", "import", "--group", name, stdin="\n".join(lines[name]))
    ours = [group("offsets", "export", name, "--csv").stdout for name in (one, two)]
    both = group("offsets", "export", one, two, "--csv").stdout
    assert stands()

    kafkas = java.groups("--reset-offsets", "--group", one, "--all-topics", "--to-current", "--export", "--dry-run")
    assert cells(kafkas) == cells(ours[0]) == cells("\n".join(lines[one]))
    named = [part for name in (one, two) for part in ("--group", name)]
    kafkas_both = java.groups("--reset-offsets", *named, "--all-topics", "--to-current", "--export", "--dry-run")
    assert cells(kafkas_both) == cells(both)

    forget()
    for name, text in zip((one, two), ours, strict=True):
        file.write_text(text)
        java.groups("--reset-offsets", "--group", name, "--from-file", str(file), "--execute")
    assert stands(), "its tool takes ours"
    forget()
    file.write_text(both)
    java.groups("--reset-offsets", *named, "--from-file", str(file), "--execute")
    assert stands(), "its tool takes ours of several groups"
    forget()
    group("offsets", "import", "--group", one, stdin=kafkas)
    group("offsets", "import", stdin=kafkas_both)
    assert stands(), "we take its"


def remove_static(address: str, group: str, instance: str) -> None:
    """Have a static member leave by its name, as administrators do."""
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        (error,) = admin.remove_group_members(group, [MemberToRemove(group_instance_id=instance)]).values()
        assert error.__name__ == "NoError"
