"""`kafkalite group` on the groups of foreign clients, against either broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cli.group.descriptions import LAG_COLUMNS
from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.group_stories import rewound_while_active
from tests.kit.clients import Confluent, Record
from tests.kit.clients.groups import (
    EACH,
    PARTITIONS,
    Run,
    commit_all,
    committed,
    objects,
    one_line,
    partitions_of,
    write,
)
from tests.kit.clients.members import AIO, CONSUMER, COOPERATIVE, EAGER, KINDS, PYTHON, Crowd, Kind, Wish

HOUR_MS = 3_600_000
# How a kind's client calls itself, and how its partitions are given out.
SHOWN = {
    EAGER: ("rdkafka", "range"),
    COOPERATIVE: ("rdkafka", "cooperative-sticky"),
    CONSUMER: ("rdkafka", "uniform"),
    AIO: ("aiokafka", "range"),
    PYTHON: ("kafka-python", "range"),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_group_with_members_is_described_and_not_reset(
    group_address: str, crowd: Crowd, group: Run, new_group_topic: MakeTopic, kind: Kind
) -> None:
    """State, member, what it owns, and its lag in records and in seconds."""
    topic, name = new_group_topic(2), unused_name("living")
    old_ms = int(time.time() * 1000) - HOUR_MS
    Confluent().write(group_address, topic, [Record(b"x", timestamp_ms=old_ms + n, partition=n % 2) for n in range(6)])
    member = crowd.join(kind, Wish(name, (topic,)))
    crowd.share(partitions_of(topic, 2), member)
    commit_all([member], partitions_of(topic, 2), 3)
    Confluent().write(group_address, topic, [Record(b"y", timestamp_ms=old_ms + n) for n in range(4)])

    (listed,) = [each for each in objects(group("list", "--json")) if each["group"] == name]
    how = "consumer" if kind is CONSUMER else "classic"
    assert (listed["state"], listed["type"].lower(), listed["protocol_type"]) == ("Stable", how, "consumer")
    assert name in group("list", "--state", "Stable", "--type", how).stdout
    assert name not in group("list", "--state", "Empty").stdout

    (received,) = objects(group("describe", name, "--json"))
    client, assignor = SHOWN[kind]
    assert (received["state"], received["type"], received["assignor"]) == ("Stable", how, assignor)
    (shown,) = received["members"]
    assert shown["client_id"].startswith(client)
    assert (shown["host"], shown["assignment"]) == ("127.0.0.1", [[topic, 0], [topic, 1]])
    first, second = received["partitions"]
    assert (first["current_offset"], first["log_end_offset"], first["lag"]) == (3, 7, 4)
    assert first["consumer_id"] == shown["consumer_id"]
    assert (second["current_offset"], second["log_end_offset"], second["lag"], second["lag_seconds"]) == (3, 3, 0, 0)
    assert 3600 <= first["lag_seconds"] < 3600 + 300
    text = group("describe", name).stdout
    assert f"{name}: type {how}, state Stable, " in text and client in text
    assert text.splitlines()[1].split() == list(LAG_COLUMNS)

    assert "has members (state Stable)" in one_line(group("reset", name, "--to", "earliest", code=2))
    line = f"{topic},0,1\n"
    assert "has members" in one_line(group("offsets", "import", "--group", name, "--dry-run", stdin=line, code=2))
    refused = one_line(group("delete", name, code=2))
    assert refused.endswith("the group has members (NON_EMPTY_GROUP); stop its members first")
    plan = objects(group("rewind", name, "--to", "earliest", "--dry-run", "--json"))
    assert [(each["prior_offset"], each["new_offset"]) for each in plan] == [(3, 0), (3, 0)]
    assert committed(group_address, name, partitions_of(topic, 2)) == dict.fromkeys(partitions_of(topic, 2), 3)


def test_reset_of_a_group_without_members(group_address: str, group: Run, new_group_topic: MakeTopic) -> None:
    """To an offset, the ends, a time; for all that it has committed, a topic, or some partitions."""
    topic, name = new_group_topic(2, **{"retention.ms": "-1"}), unused_name("resting")  # the records are of 1970
    day_ms = 86_400_000
    sent = [Record(b"x", timestamp_ms=n * day_ms, partition=p) for p in range(2) for n in range(1, 5)]
    Confluent().write(group_address, topic, sent)

    def moved(*args: str) -> list[tuple[int, Any, int]]:
        return [
            (each["partition"], each["prior_offset"], each["new_offset"]) for each in objects(group(*args, "--json"))
        ]

    assert "has no committed offsets" in one_line(group("reset", name, "--to", "latest", code=2))
    assert moved("reset", name, "--to", "latest", "--topic", f"{topic}:1", "--dry-run") == [(1, None, 4)]
    assert "(GROUP_ID_NOT_FOUND); `kafkalite group list`" in one_line(group("describe", name, code=2))
    refused = one_line(group("rewind", name, "--to", "latest", "--topic", topic, code=2))
    assert "the group does not exist (GROUP_ID_NOT_FOUND)" in refused, "a slip of the pen makes no group"
    assert moved("reset", name, "--to", "latest", "--topic", topic) == [(0, None, 4), (1, None, 4)]
    assert moved("rewind", name, "--to", "1", "--topic", f"{topic}:0") == [(0, 4, 1)]
    assert moved("rewind", name, "--to", "1970-01-04") == [(0, 1, 2), (1, 4, 2)]
    assert moved("reset", name, "--to", "1970-01-04T00:00:00.001+00:00") == [(0, 2, 3), (1, 2, 3)]
    assert moved("reset", name, "--to", f"@{day_ms}") == [(0, 3, 0), (1, 3, 0)]
    assert moved("reset", name, "--to", "2020-01-01") == [(0, 0, 4), (1, 0, 4)], "nothing is so late: the end"
    assert moved("reset", name, "--to", "start") == [(0, 4, 0), (1, 4, 0)]
    assert moved("reset", name, "--to", "+3") == [(0, 0, 3), (1, 0, 3)]
    assert moved("reset", name, "--to", "-3") == [(0, 3, 1), (1, 3, 1)]
    assert moved("reset", name, "--to", "-99") == [(0, 1, 0), (1, 1, 0)], "limited to the log"
    assert moved("reset", name, "--to", "end") == [(0, 0, 4), (1, 0, 4)]
    assert moved("reset", name, "--to", "99") == [(0, 4, 4), (1, 4, 4)], "an offset outside the log is its end"
    assert committed(group_address, name, partitions_of(topic, 2)) == dict.fromkeys(partitions_of(topic, 2), 4)
    text = group("rewind", name, "--to", "earliest").stdout
    assert [line.split() for line in text.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "PRIOR-OFFSET", "NEW-OFFSET"],
        [name, topic, "0", "4", "0"],
        [name, topic, "1", "4", "0"],
    ]
    assert group("delete", name).stdout == f"deleted {name}\n"
    assert "(GROUP_ID_NOT_FOUND); `kafkalite group list`" in one_line(group("delete", name, code=2))


def test_offsets_are_exported_and_imported(
    group_address: str, group: Run, new_group_topic: MakeTopic, tmp_path: Path
) -> None:
    """As JSON lines with metadata, and as the CSV of kafka-consumer-groups, into the same group or another."""
    topic, one, two = new_group_topic(2), unused_name("from"), unused_name("into")
    write(group_address, topic, partitions=2)
    given = f'{{"group": "{one}", "topic": "{topic}", "partition": 0, "offset": 3, "metadata": "ä"}}\n'
    group("offsets", "import", stdin=given)
    group("reset", one, "--to", "4", "--topic", f"{topic}:1")
    exported = group("offsets", "export", one).stdout
    assert [json.loads(line) for line in exported.splitlines()] == [
        {"group": one, "topic": topic, "partition": 0, "offset": 3, "metadata": "ä"},
        {"group": one, "topic": topic, "partition": 1, "offset": 4, "metadata": ""},
    ]
    as_csv = group("offsets", "export", one, "--csv").stdout
    assert as_csv == f"{topic},0,3\n{topic},1,4\n"

    file = tmp_path / "offsets.csv"
    file.write_text(as_csv)
    assert "do not name a group" in one_line(group("offsets", "import", str(file), code=2))
    said = group("offsets", "import", str(file), "--group", two, "--dry-run").stdout
    assert [line.split() for line in said.splitlines()[1:]] == [
        [two, topic, "0", "-", "3"],
        [two, topic, "1", "-", "4"],
    ]
    assert "(GROUP_ID_NOT_FOUND)" in one_line(group("offsets", "export", two, code=2))
    group("offsets", "import", str(file), "--group", two)
    assert committed(group_address, two, partitions_of(topic, 2)) == {(topic, 0): 3, (topic, 1): 4}

    both = group("offsets", "export", one, two, "--csv").stdout
    assert both.splitlines() == [f"{name},{topic},{p},{p + 3}" for name in (one, two) for p in (0, 1)]
    group("reset", one, "--to", "latest")
    assert committed(group_address, one, partitions_of(topic, 2)) == dict.fromkeys(partitions_of(topic, 2), EACH)
    group("offsets", "import", stdin=both)
    assert committed(group_address, one, partitions_of(topic, 2)) == {(topic, 0): 3, (topic, 1): 4}


WRONG = [
    (("list", "--state", "Steady"), "'Steady' is not one of"),
    (("list", "--type", "modern"), "'modern' is not one of"),
    (("describe", ""), "INVALID_GROUP_ID"),
    (("describe", "nobody"), "GROUP_ID_NOT_FOUND"),
    (("describe", "x" * 40_000), "too many for a string"),
    (("delete", "nobody", "somebody"), "somebody: there is no such group"),
    (("reset", "nobody", "--to", "soon", "--topic", "{topic}"), "'soon' is not a valid position"),
    (("rewind", "nobody", "--topic", "{topic}"), "Missing option '--to'"),
    (("reset", "nobody", "--to", "latest"), "nobody has no committed offsets"),
    (("rewind", "nobody", "--to", "latest", "--topic", "{topic}"), "GROUP_ID_NOT_FOUND"),
    (("reset", "nobody", "--to", "latest", "--topic", "{topic}-not"), "UNKNOWN_TOPIC_OR_PARTITION"),
    (("reset", "nobody", "--to", "latest", "--topic", "{topic}:1"), "has partitions 0 to 0, not 1"),
    (("reset", "nobody", "--to", "latest", "--topic", "{topic}:"), "does not name partitions"),
    (("offsets", "export", "nobody"), "GROUP_ID_NOT_FOUND"),
]


@pytest.mark.parametrize(("args", "said"), WRONG, ids=lambda each: " ".join(each)[:40] if type(each) is tuple else "")
def test_invalid_input_is_an_error_of_one_line(
    group: Run, new_group_topic: MakeTopic, args: tuple[str, ...], said: str
) -> None:
    topic = new_group_topic()
    assert said in one_line(group(*(each.format(topic=topic) for each in args), code=2))


IMPORTS = [
    (b"", "nothing to import"),
    (b"{topic},0\n", "line 1 is not a committed offset"),
    (b"{topic},0,1\n{topic},0,-1\n", "line 2 is not a committed offset"),
    (b"{topic},0,1\n\xff\xfe\n", "not UTF-8 text"),
    (b"{topic},7,1\n", "UNKNOWN_TOPIC_OR_PARTITION"),
    (b"{topic}-not,0,1\n", "UNKNOWN_TOPIC_OR_PARTITION"),
]


@pytest.mark.parametrize(("content", "said"), IMPORTS, ids=lambda each: each if type(each) is str else "")
def test_invalid_import_is_an_error_of_one_line(
    group: Run, new_group_topic: MakeTopic, tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(content.replace(b"{topic}", new_group_topic().encode()))
    assert said in one_line(group("offsets", "import", str(file), "--group", "imported", code=2))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rewind_of_a_group_with_members(crowd: Crowd, group: Run, new_group_topic: MakeTopic, kind: Kind) -> None:
    """The members drop what they have, read again from there, and commit."""
    rewound_while_active(crowd, kind, new_group_topic(PARTITIONS), group)
