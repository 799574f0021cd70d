"""Answers of Kafka 0.8.2, 0.10.2 and 1.1 that are kept as data, for unit tests without Java.

    python -m tests.kit.zookeeper_era.golden        # writes them again; needs Java and Maven

`partitions.txt` has one digit for each key of `cases.drawn_keys()`: the partition of Kafka's default partitioner among
ten. `hash_codes.txt` has the first 500 hash codes. `assignments.json` has the owners of each group of
`cases.groups()`.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.kit import jvm
from tests.kit.zookeeper_era import cases

DATA = Path(__file__).parent / "golden"
SOURCE = Path(__file__).parent / "Answers.java"
VERSIONS = ("0.8.2.2", "0.10.2.2", "1.1.1")
STRATEGIES = ("range", "roundrobin")
REFUSED = "refused"
HASH_CODES = 500
TIMEOUT_S = 60.0
TopicPartition = tuple[str, int]
Owners = dict[TopicPartition, str]


def partitions() -> list[int]:
    """The partition of each key among ten, the same in all versions."""
    return [int(digit) for digit in (DATA / "partitions.txt").read_text().strip()]


def hash_codes() -> list[int]:
    """`String.hashCode` of the first keys."""
    return [int(line) for line in (DATA / "hash_codes.txt").read_text().split()]


def assignments(version: str, strategy: str) -> list[Owners | None]:
    """The owners in each group: the stream id of each assigned partition. None = the version refuses the group.

    Arguments:
        version: of Kafka, one of VERSIONS.
        strategy: `range` or `roundrobin`.
    """
    kept = json.loads((DATA / "assignments.json").read_text())
    answers = kept[strategy][version]
    all_groups = zip(cases.groups(), kept[strategy]["1.1.1"] if answers == "1.1.1" else answers, strict=True)
    return [None if answer == REFUSED else _unpacked(group, answer) for group, answer in all_groups]


def _packed(group: cases.Group, owners: Owners) -> dict[str, str]:
    """By topic, the number of the consumer and of its stream of each partition: `0-1 2-0`."""
    numbers = {consumer: number for number, consumer in enumerate(group.consumers)}
    by_topic: dict[str, dict[int, str]] = defaultdict(dict)
    for (topic, partition), stream in owners.items():
        consumer, number = stream.rsplit("-", 1)
        by_topic[topic][partition] = f"{numbers[consumer]}-{number}"
    for topic, streams in by_topic.items():
        assert sorted(streams) == list(range(group.topics[topic])), (group, topic, streams)
    return {topic: " ".join(streams[each] for each in sorted(streams)) for topic, streams in sorted(by_topic.items())}


def _unpacked(group: cases.Group, answer: dict[str, str]) -> Owners:
    ids = list(group.consumers)
    owners = {}
    for topic, streams in answer.items():
        for partition, stream in enumerate(streams.split()):
            consumer, number = stream.split("-")
            owners[topic, partition] = f"{ids[int(consumer)]}-{number}"
    return owners


class Java:
    """One process of `Answers.java`."""

    def __init__(self, version: str) -> None:
        classes = jvm.compiled(version, SOURCE)
        self._command = jvm.java_command(version, SOURCE.stem, log="ERROR", classes=classes)

    def run(self, lines: Iterable[str]) -> list[list[str]]:
        """Send all lines; return the words of those of the output."""
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(self._command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise jvm.JvmError(f"{SOURCE.name} failed:\n{done.stderr}")
        return [line.split("\t") for line in done.stdout.splitlines()]


def java_partitions(version: str) -> tuple[str, list[str]]:
    """The digits and the hash codes of one version."""
    answers = Java(version).run(f"key\t{key.encode().hex()}\t{cases.PARTITIONS}" for key in cases.drawn_keys())
    return "".join(words[1] for words in answers), [words[2] for words in answers[:HASH_CODES]]


def java_assignments(version: str) -> dict[str, list[dict[str, str] | str]]:
    """The packed owners of all groups, by strategy."""
    lines = [line for group in cases.groups() for line in _nodes(group)]
    owners: dict[str, Owners] = {each: {} for each in STRATEGIES}
    refused: set[str] = set()
    answers: dict[str, list[dict[str, str] | str]] = {each: [] for each in STRATEGIES}
    remaining = iter(cases.groups())
    for words in Java(version).run(lines):
        if words[0] == "done":
            group = next(remaining)
            for each in STRATEGIES:
                answers[each].append(REFUSED if each in refused else _packed(group, owners[each]))
            owners, refused = {each: {} for each in STRATEGIES}, set()
        elif words[1] == REFUSED:
            refused.add(words[0])
        else:
            owners[words[0]][words[1], int(words[2])] = words[3]
    return answers


def _nodes(group: cases.Group) -> list[str]:
    brokers = {"version": 1}
    topics = [
        f"node\t/brokers/topics/{name}\t" + json.dumps({**brokers, "partitions": {str(n): [1] for n in range(count)}})
        for name, count in group.topics.items()
    ]
    ids = [f"node\t/consumers/{cases.GROUP}/ids/{each}\t{text}" for each, text in group.consumers.items()]
    return [*topics, *ids, f"assign\t{cases.GROUP}"]


def write() -> None:
    """Ask all versions, and write the data files. Equal answers of an older version are kept once."""
    DATA.mkdir(exist_ok=True)
    (digits, codes), *others = [java_partitions(version) for version in VERSIONS]
    assert all(other == (digits, codes) for other in others)
    (DATA / "partitions.txt").write_text(digits + "\n")
    (DATA / "hash_codes.txt").write_text("\n".join(codes) + "\n")
    answers = {version: java_assignments(version) for version in VERSIONS}
    kept = {
        strategy: {
            version: "1.1.1"
            if version != "1.1.1" and answers[version][strategy] == answers["1.1.1"][strategy]
            else answers[version][strategy]
            for version in VERSIONS
        }
        for strategy in STRATEGIES
    }
    (DATA / "assignments.json").write_text(json.dumps(kept, indent=0, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    write()
