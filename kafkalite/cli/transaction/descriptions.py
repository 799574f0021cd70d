"""Prints transactions as tables or as JSON."""

import json
import time
from collections.abc import Sequence

import click
from kafkalite_sdk.admin import OpenTransaction, TransactionDescription

from kafkalite.cli.client_options import column_key, join_names, print_rows
from kafkalite.cli.times import time_text

# The columns of kafka-transactions, in its order.
DESCRIBE_COLUMNS = (
    *("COORDINATOR", "TRANSACTIONAL-ID", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE", "TIMEOUT-MS"),
    *("START", "AGE-SECONDS", "PARTITIONS"),
)
HANGING_COLUMNS = (
    *("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH", "START-OFFSET"),
    *("LAST-TIMESTAMP", "AGE-SECONDS", "TRANSACTIONAL-ID"),
)


def print_transactions(transactions: Sequence[TransactionDescription], as_json: bool) -> None:
    """Print transactions with their partitions."""
    for each in transactions if as_json else ():
        row = description_row(each)[:-1]
        about = dict(zip(map(column_key, DESCRIBE_COLUMNS), row, strict=False))
        click.echo(json.dumps({**about, "partitions": [list(partition) for partition in each.partitions]}))
    if transactions and not as_json:
        print_rows(DESCRIBE_COLUMNS, [description_row(each) for each in transactions], as_json=False)


def description_row(each: TransactionDescription) -> tuple[object, ...]:
    """A transaction in the order of DESCRIBE_COLUMNS."""
    start = None if each.start_time_ms is None else time_text(each.start_time_ms)
    open_ms = each.start_time_ms if each.is_open else None
    producer = (each.producer_id, each.producer_epoch)
    age = None if open_ms is None else age_s(open_ms)
    state = (each.state, each.timeout_ms, start, age)
    return (each.coordinator, each.transactional_id, *producer, *state, each.partitions)


def print_hanging(transactions: Sequence[OpenTransaction], as_json: bool) -> None:
    """Print open transactions that no coordinator will end, and the next step on standard error."""
    rows = [
        (
            *each.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.start_offset,
            time_text(each.last_timestamp_ms),
            age_s(each.last_timestamp_ms),
            each.transactional_id,
        )
        for each in transactions
    ]
    print_rows(HANGING_COLUMNS, rows, as_json)
    if transactions:
        topic, partition = transactions[0].partition
        offset = transactions[0].start_offset
        command = f"kafkalite transaction abort {topic}:{partition} --start-offset {offset}"
        click.echo(f"{len(transactions)} transaction(s) hang; `{command}` ends the first one", err=True)


def open_transaction_text(each: OpenTransaction) -> str:
    """An open transaction in a partition, in one line."""
    producer = f"producer {each.producer_id} epoch {each.producer_epoch}"
    last = f"last batch {age_s(each.last_timestamp_ms):.1f} s ago"
    if each.transactional_id is None:
        owner = "no coordinator knows it"
    else:
        owner = f"transactional id {each.transactional_id}, state {each.state or 'unknown'}"
    return f"transaction of {producer} from offset {each.start_offset} on, {last}; {owner}"


def description_text(each: TransactionDescription) -> str:
    """A transaction in one line."""
    producer = f"producer {each.producer_id} epoch {each.producer_epoch}"
    began = "" if each.start_time_ms is None or not each.is_open else f", open for {age_s(each.start_time_ms):.1f} s"
    partitions = join_names([str(partition) for partition in each.partitions])
    where = f", in {partitions}" if partitions else ""
    return f"{each.transactional_id}: {producer}, state {each.state}{began}{where}"


def age_s(since_ms: int) -> float:
    """Seconds since a time in ms since 1970."""
    return round(max(time.time() * 1000 - since_ms, 0) / 1000, 3)
