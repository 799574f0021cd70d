"""Counts the attributes of classes: a class with many has several tasks.

1. Counted are the names that a method assigns to its first argument (`self.x = ...`, also in `for`, `with` and tuples)
   and the names in `__slots__`. Those of its base classes in Python do not count.
2. The fields of dataclasses, NamedTuples and messages do not count: these are records, and their constructor lists
   the fields. Nor do the attributes of Cython classes, which are fields of a C structure.
3. `EXCEPTIONS` has a row for each class above the limit, with the number that it may not exceed. The number only
   falls: a class that has fewer attributes now, or that is gone, fails the test until its row follows.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.tidy.imports import module_name

LIMIT = 12
PACKAGES = ("kafkalite", "sdk/kafkalite_sdk", "sdk/pyspark_kafkalite")


class Exempt(NamedTuple):
    """A class that may have more than LIMIT attributes. Classes of one name have a row each."""

    name: str
    limit: int
    reason: str


class Counted(NamedTuple):
    """A class with the number of attributes that it adds to those of its bases."""

    name: str
    count: int
    path: str


class _Class(NamedTuple):
    own: frozenset[str]
    bases: tuple[str, ...]  # as `module.Class`


def violations(root: Path, exceptions: Sequence[Exempt]) -> list[str]:
    """The classes above their limits, and the exceptions that are higher than needed, each as one line.

    Arguments:
        root: the checkout.
        exceptions: their order has no meaning.
    """
    found = []
    limits: dict[str, list[int]] = {}
    for name, limit, _ in sorted(exceptions, key=lambda each: -each.limit):
        limits.setdefault(name, []).append(limit)
    for name, count, path in count_attributes(root):
        limit = limits[name].pop(0) if limits.get(name) else LIMIT
        if count > limit:
            found.append(f"{path}: {name} has {count} attributes, allowed are {limit}")
        elif count <= LIMIT < limit:
            found.append(f"{path}: {name} has {count} attributes: remove its exception")
        elif LIMIT < count < limit:
            found.append(f"{path}: {name} has {count} attributes: lower its exception from {limit}")
    return found + [f"{name}: no such class: remove its exception" for name, left in limits.items() for _ in left]


def count_attributes(root: Path) -> list[Counted]:
    """The classes of the packages in the checkout `root`, those with most attributes first."""
    classes = dict(_classes(root))
    found = [
        Counted(name.rpartition(".")[2], len(each.own - _inherited(each, classes)), name.rpartition(".")[0])
        for name, each in classes.items()
    ]
    return sorted(found, key=lambda each: -each.count)


def _classes(root: Path) -> Iterator[tuple[str, _Class]]:
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            module = module_name(path, (root / package).parent)
            tree = ast.parse(path.read_text())
            imported = dict(_imported(tree))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
                    names = (base.id for base in bases if isinstance(base, ast.Name))
                    known = tuple(imported.get(name, f"{module}.{name}") for name in names)
                    yield f"{module}.{node.name}", _Class(frozenset(attributes(node)), known)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def _inherited(each: _Class, classes: dict[str, _Class]) -> set[str]:
    known = (classes[base] for base in each.bases if base in classes)
    return {name for base in known for name in base.own | _inherited(base, classes)}


def attributes(node: ast.ClassDef) -> set[str]:
    """The names that a class assigns to its instances or lists in `__slots__`."""
    names: set[str] = set()
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.args.args:
            names.update(_assigned(each, each.args.args[0].arg))
        elif isinstance(each, ast.Assign) and "__slots__" in (getattr(target, "id", "") for target in each.targets):
            names.update(str(slot.value) for slot in ast.walk(each.value) if isinstance(slot, ast.Constant))
    return names


def _assigned(method: ast.FunctionDef | ast.AsyncFunctionDef, instance: str) -> Iterator[str]:
    stored = (each for each in ast.walk(method) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
    return (each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == instance)


EXCEPTIONS = (
    Exempt("RunningBroker", 32, "the parts of a broker, which handlers reach through contexts"),
    Exempt("Log", 31, "offsets and times of one log, beside its segments; appends read them without a call"),
    Exempt("Driver", 31, "the loop, timer and machines of a consumer"),
    Exempt("LogManager", 31, "the executors and registers of all logs; jobs have their own classes"),
    Exempt("Driver", 26, "the loop, timer, channels and accumulator of a producer; its settings are one"),
    Exempt("PartitionState", 25, "a hot object: appends and fetches look nothing up"),
    Exempt("BrokerResources", 23, "what a broker opens and closes in one order"),
    Exempt("ControllerContext", 24, "the memory of the controller, a dictionary per fact of the tree"),
    Exempt("JournaledTree", 22, "one state of a journal: encoded, written, flushed, delivered"),
    Exempt("Connector", 22, "one connection attempt with its link, timer and servers"),
    Exempt("Fetcher", 22, "buffers, jobs and plan of all fetches, of which a poll takes one after the other"),
    Exempt("SessionCore", 21, "the state of one session as ZooKeeper's protocol has it"),
    Exempt("ClusterParticipant", 21, "opens the sessions and hosts both broker sessions and controller"),
    Exempt("Channel", 21, "what one broker was sent, accepted and still has to be sent"),
    Exempt("AIOKafkaConsumer", 21, "the settings and state that aiokafka's constructor and methods have"),
    Exempt("RunningTerm", 19, "the ports of one term, and its operations that have not ended"),
    Exempt("Segment", 19, "a hot object: file, indexes and limits of a segment"),
    Exempt("Channel", 18, "a connection and the time and reason of each of its changes"),
    Exempt("RecordSender", 17, "counts and limits of one run of `produce`"),
    Exempt("CoordinatorShard", 17, "the life cycle of a shard: loading, open, closed"),
    Exempt("Listener", 17, "sockets of all addresses and the counts of their limits"),
    Exempt("MemberCore", 17, "the base of three protocols, which share its state"),
    Exempt("ConfigWatcher", 16, "one watch with its retries and what it has read"),
    Exempt("CleaningRun", 16, "the steps of one cleaning, which share its plan and worker"),
    Exempt("MemoryTransport", 16, "asyncio's transport: two directions with their limits"),
    Exempt("PartitionState", 16, "a record of one assigned partition, which several parts change"),
    Exempt("Registration", 15, "one registration with its retries"),
    Exempt("LogCleaner", 15, "ports and schedule of the cleaner"),
    Exempt("LogSwap", 15, "the steps of one swap, which share both logs"),
    Exempt("RangeReader", 15, "the arguments of one range, and what its retries know"),
    Exempt("GroupRequests", 15, "find, connect and requests of one coordinator"),
    Exempt("SchemaRegistry", 15, "settings of an HTTP client and its cache"),
    Exempt("ReplicaSession", 14, "the numbers of a session, its marks and the fetch that waits for them"),
    Exempt("Election", 14, "one election with its retries"),
    Exempt("CoordinatorLoader", 14, "position and counts of one replay"),
    Exempt("PartitionHosting", 15, "what the broker has and partitions use"),
    Exempt("Row", 14, "the columns of the table of API keys"),
    Exempt("ConsumerGroup", 14, "the records of a group, one attribute per record type"),
    Exempt("Flusher", 14, "the batches of all directories and their limits"),
    Exempt("PartitionBuffer", 14, "what one partition has fetched, and from where"),
    Exempt("ClassicMember", 14, "the protocol state of a member, named as in the protocol"),
    Exempt("BrokerSessions", 13, "sessions and registration of a broker"),
    Exempt("Topic", 13, "what the tree and the controller say about a topic"),
    Exempt("Partition", 14, "what the tree and the controller say about a partition"),
    Exempt("ClassicMember", 13, "the member as JoinGroup describes it"),
    Exempt("Channels", 13, "the channels of a client and their shared settings"),
    Exempt("ConsumerMember", 13, "the protocol state of a member, named as in the protocol"),
)
