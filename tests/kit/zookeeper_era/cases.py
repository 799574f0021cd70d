"""Inputs of which `golden.py` keeps the answers of Java: keys for the partitioner, groups for the assignors.

They are drawn from fixed seeds, so a test draws the same again and the data files keep the answers alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

KEYS = 10_000
GROUPS = 300
PARTITIONS = 10  # one digit for each key
KEY_SEED, GROUP_SEED = 822, 111
GROUP = "g"
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_./: äßéЖ中字\u0000\u007f\ud7ff\ue000😀𝔘"
# The hash code of the first one is -2,147,483,648, which has no absolute value.
SPECIAL_KEYS = ("polygenelubricants", "", "Aa", "BB", "0", "-1")
NAMES = "abcXYZ019._-"
INTERNAL = "__consumer_offsets"


def drawn_keys() -> list[str]:
    """The keys, in order."""
    random = Random(KEY_SEED)
    drawn = ["".join(random.choices(CHARACTERS, k=random.randrange(1, 24))) for _ in range(KEYS - len(SPECIAL_KEYS))]
    return [*SPECIAL_KEYS, *drawn]


@dataclass(frozen=True, slots=True)
class Group:
    """A group and the topics that its consumers find in ZooKeeper.

    Attributes:
        topics: number of partitions of each topic.
        consumers: the text of the registration of each consumer, by its id.
    """

    topics: dict[str, int]
    consumers: dict[str, str]


def groups() -> list[Group]:
    """The groups, in order."""
    random = Random(GROUP_SEED)
    return [_group(random) for _ in range(GROUPS)]


def _group(random: Random) -> Group:
    names = {"".join(random.choices(NAMES, k=random.randrange(1, 7))).strip(".") or "t" for _ in range(4)}
    topics = {name: random.choice((1, 2, 3, 5, 11, 12, 30)) for name in sorted(names)}
    if random.random() < 0.3:
        topics[INTERNAL] = 4
    missing = ["not-created"] if random.random() < 0.1 else []
    names_of_all = [*(name for name in topics if name != INTERNAL), *missing]
    ids = [f"{GROUP}_host-{1700000000000 + random.randrange(3)}-{random.getrandbits(32):x}" for _ in range(6)]
    whole = random.random() < 0.4  # all consumers of the group subscribe alike, which 0.8 requires for round robin
    first = _subscription(random, names_of_all)
    count = random.randrange(1, 7)
    return Group(
        topics, {each: _registration(first if whole else _subscription(random, names_of_all)) for each in ids[:count]}
    )


def _subscription(random: Random, names: list[str]) -> tuple[str, dict[str, int]]:
    chosen = random.random()
    streams = random.randrange(1, 5)
    if chosen < 0.6:
        picked = random.sample(names, random.randrange(1, len(names) + 1))
        return "static", {name: streams if random.random() < 0.7 else random.randrange(1, 4) for name in sorted(picked)}
    if chosen < 0.85:
        return "white_list", {
            random.choice((".*", "[a-c].*", ".*[0-9]", "|".join(names[:2]).replace(".", "[.]"))): streams
        }
    return "black_list", {random.choice(("nothing", "[a-c].*", ".*_.*", names[0].replace(".", "[.]"))): streams}


def _registration(subscription: tuple[str, dict[str, int]]) -> str:
    pattern, counts = subscription
    fields = {"version": 1, "subscription": counts, "pattern": pattern, "timestamp": "1700000000000"}
    return json.dumps(fields, separators=(",", ":"))
