"""Checks a history of transactions. The rules are those of Jepsen's Kafka workload that concern transactions.

| anomaly | rule |
|---|---|
| aborted-read (G1a) | a reader of committed records received a value of a transaction that was not committed |
| early-read | a reader received a value before a commit was requested, or a transaction has read its own value |
| torn-transaction | the full reading has a part of the values of a transaction |
| circular-information-flow (G1c) | transactions have read each other's values in a cycle |
| lost-write | a value of a committed transaction is missing in the full reading |
| lost-read | a reader received a value that the full reading does not have |
| duplicate | a value is at two offsets |
| inconsistent-offsets | an offset has two values |
| unsent | a value was never sent to this partition, or is damaged |
| nonmonotonic-send | a later send of a producer is below an earlier one of the same partition |
| nonmonotonic-poll | the offsets of a reader repeat or decrease |
| poll-skip | a reader has passed over an offset with a committed value |
| input-twice | two committed values were made from one input record |
| input-lost | an input record below the committed offset of the group has no committed value |
| input-not-committed | a committed value was made from an input record that the committed offset does not cover |

A transaction whose commit was requested without an answer may be committed or not, but as a whole. Cycles of writes
alone (G0) are allowed: transactions of Kafka do not isolate writes. `markers` checks the logs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from tests.kit.checker import Anomaly
from tests.kit.transactions.history import History, Outcome, Partition, Source, Transaction

VISIBLE = (Outcome.REQUESTED, Outcome.COMMITTED)


def check(history: History, full: str) -> list[Anomaly]:
    """All anomalies of a history; none if the brokers have kept their guarantees.

    Arguments:
        history: the events.
        full: the reader of committed records that read all partitions from the beginning to the end, after all others.
    """
    anomalies = [*_values(history), *_readers(history, full), *_visibility(history)]
    return [*anomalies, *_complete(history, full), *_send_order(history, full), *_cycles(history)]


def check_inputs(
    history: History, full: str, topic: str, committed: Mapping[Partition, int], inputs: Mapping[Partition, list[int]]
) -> list[Anomaly]:
    """Each input record of a group is processed once, and the offsets agree with the values.

    Arguments:
        history: the events.
        full: as in `check`.
        topic: the topic of the outputs.
        committed: the committed offset of each input partition, 0 = none.
        inputs: the offsets of the committed records of each input partition.
    """
    outputs: defaultdict[Source, list[int]] = defaultdict(list)
    for partition, reads in history.readers[full].items():
        for read in reads:
            send = history.sends.get(read.number)
            if partition[0] == topic and send is not None and send.source is not None:
                outputs[send.source].append(read.number)
    return [*_processed(outputs, committed), *_unprocessed(outputs, committed, inputs)]


def _processed(outputs: Mapping[Source, list[int]], committed: Mapping[Partition, int]) -> Iterator[Anomaly]:
    for source, numbers in outputs.items():
        if len(numbers) > 1:
            yield Anomaly("input-twice", source.partition, f"offset {source.offset} is the source of {numbers}")
        if source.offset >= committed.get(source.partition, 0):
            text = f"offset {source.offset} is processed, {committed.get(source.partition, 0)} is committed"
            yield Anomaly("input-not-committed", source.partition, text)


def _unprocessed(
    outputs: Mapping[Source, list[int]], committed: Mapping[Partition, int], inputs: Mapping[Partition, list[int]]
) -> Iterator[Anomaly]:
    for partition, offsets in inputs.items():
        below = [each for each in offsets if each < committed.get(partition, 0)]
        for offset in below:
            if Source(partition, offset) not in outputs:
                yield Anomaly("input-lost", partition, f"offset {offset} is committed and has no output")


def _values(history: History) -> Iterator[Anomaly]:
    """The values of each offset, and the offsets of each value."""
    values: defaultdict[tuple[Partition, int], set[int]] = defaultdict(set)
    offsets: defaultdict[int, set[tuple[Partition, int]]] = defaultdict(set)
    found = [(send.partition, send.offset, number) for number, send in history.sends.items() if send.offset >= 0]
    found += [(partition, read.offset, read.number) for _, partition, read in history.all_reads()]
    for partition, offset, number in found:
        values[partition, offset].add(number)
        offsets[number].add((partition, offset))
    for (partition, offset), numbers in values.items():
        if len(numbers) > 1:
            yield Anomaly("inconsistent-offsets", partition, f"offset {offset} has {sorted(numbers)}")
    for number, at in offsets.items():
        send = history.sends.get(number)
        if send is None or any(partition != send.partition for partition, _ in at):
            yield Anomaly("unsent", min(at)[0], f"{number} is at {sorted(at)}")
        elif len(at) > 1:
            yield Anomaly("duplicate", send.partition, f"{number} of {send.transaction.name} is at {sorted(at)}")


def _readers(history: History, full: str) -> Iterator[Anomaly]:
    """The order of each reader's offsets, and what it passed over."""
    seen = {at: {read.offset for read in reads} for at, reads in history.readers[full].items()}
    for reader, partitions in history.readers.items():
        for partition, reads in partitions.items():
            offsets = [read.offset for read in reads]
            for before, after in pairwise(offsets):
                if after <= before:
                    yield Anomaly("nonmonotonic-poll", partition, f"{reader} received {after} after {before}")
            received = set(offsets)
            if received:
                first, last = min(received), max(received)
                skipped = [each for each in seen.get(partition, ()) if first < each < last and each not in received]
                if skipped:
                    text = f"{reader} has passed over {len(skipped)} offsets, the first is {min(skipped)}"
                    yield Anomaly("poll-skip", partition, text)


def _visibility(history: History) -> Iterator[Anomaly]:
    """Values that a reader must not have received, or not yet."""
    for reader, partition, read in history.all_reads():
        send = history.sends.get(read.number)
        if send is None:
            continue
        transaction = send.transaction
        text = f"{reader} received {read.number} of {transaction.name} at {read.offset}"
        if transaction.outcome not in VISIBLE:
            yield Anomaly("aborted-read", partition, f"{text}: {transaction.outcome.value}")
        elif read.at_s < transaction.requested_s:
            yield Anomaly("early-read", partition, f"{text} at {read.at_s:.3f} s, requested {transaction.requested_s}")
    for transaction in history.transactions:
        own = set(transaction.reads) & set(transaction.numbers)
        for number in own:
            text = f"{transaction.name} has read its own value {number}"
            yield Anomaly("early-read", history.sends[number].partition, text)


def _complete(history: History, full: str) -> Iterator[Anomaly]:
    """Transactions of which the full reading has a part, and values that it lacks."""
    reading = history.readers[full]
    seen = {read.number for reads in reading.values() for read in reads}
    for transaction in history.transactions:
        numbers = [number for number in transaction.numbers if history.sends[number].partition in reading]
        missing = [number for number in numbers if number not in seen]
        if not missing:
            continue
        partition = history.sends[missing[0]].partition
        text = (
            f"{len(missing)} of {len(numbers)} values of {transaction.name} are missing ({transaction.outcome.value})"
        )
        if len(missing) < len(numbers) and transaction.outcome in VISIBLE:
            yield Anomaly("torn-transaction", partition, f"{text}, the first is {missing[0]}")
        elif transaction.outcome is Outcome.COMMITTED:
            yield Anomaly("lost-write", partition, text)
    for reader, partition, read in history.all_reads():
        if partition in reading and read.number not in seen:
            yield Anomaly("lost-read", partition, f"{reader} received {read.number} at {read.offset}")


def _send_order(history: History, full: str) -> Iterator[Anomaly]:
    """The order of each producer's values in each partition of the full reading."""
    offsets = {read.number: read.offset for reads in history.readers[full].values() for read in reads}
    last: dict[tuple[str, Partition], tuple[int, int]] = {}
    for number, send in history.sends.items():
        if number not in offsets:
            continue
        key = send.transaction.producer, send.partition
        before, offset = last.get(key), offsets[number]
        if before is not None and offset < before[0]:
            text = f"{number} of {send.transaction.name} is at {offset}, the earlier {before[1]} at {before[0]}"
            yield Anomaly("nonmonotonic-send", send.partition, text)
        last[key] = offset, number


def _cycles(history: History) -> Iterator[Anomaly]:
    """Cycles of reads: each transaction of a cycle has read a value of the next one."""
    edges: dict[Transaction, list[Transaction]] = {}
    for transaction in history.transactions:
        sends = [history.sends[number] for number in transaction.reads if number in history.sends]
        edges[transaction] = list(dict.fromkeys(s.transaction for s in sends if s.transaction is not transaction))
    left = dict.fromkeys(edges, 0)  # the number of transactions that it has read and that are in a cycle, or follow one
    readers: defaultdict[Transaction, list[Transaction]] = defaultdict(list)
    for transaction, written in edges.items():
        left[transaction] = len(written)
        for each in written:
            readers[each].append(transaction)
    ready = [each for each, number in left.items() if not number]
    while ready:
        done = ready.pop()
        del left[done]
        for reader in readers[done]:
            left[reader] -= 1
            if not left[reader]:
                ready.append(reader)
    cycle = _one_cycle(edges, left)
    if cycle:
        partition = history.sends[cycle[0].numbers[0]].partition if cycle[0].numbers else ("", 0)
        yield Anomaly("circular-information-flow", partition, " <- ".join(each.name for each in cycle))


def _one_cycle(edges: Mapping[Transaction, list[Transaction]], left: Mapping[Transaction, int]) -> list[Transaction]:
    """A cycle among the transactions that could not be ordered; each of them reads from another one of them."""
    if not left:
        return []
    path: dict[Transaction, int] = {}
    here = next(iter(left))
    while here not in path:
        path[here] = len(path)
        here = next(each for each in edges[here] if each in left)
    return [*list(path)[path[here] :], here]
