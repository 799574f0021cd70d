"""Reports the partitions of which `consume` prints a part only, as a transaction is open."""

from collections.abc import Mapping

import click
from kafkalite_sdk import Admin, TopicPartition

from kafkalite.cli.client_options import join_names
from kafkalite.cli.positions import COMMITTED, LATEST, UNCOMMITTED

ANSWER_S = 5.0  # nothing is reported for a leader that takes longer


async def report_open_transactions(admin: Admin, stops: Mapping[TopicPartition, int]) -> None:
    """Name the partitions whose records behind an open transaction were not printed.

    Arguments:
        admin: of the cluster.
        stops: last stable offsets, at which the command has stopped.
    """
    ends = await offsets_of(admin, stops, UNCOMMITTED)  # before the others: a lower one is that of a transaction
    stable = await offsets_of(admin, stops, COMMITTED)
    waiting = [each for each, stop in stops.items() if stop == stable.get(each) and stop < ends.get(each, stop)]
    if waiting:
        names = join_names([f"{each} from offset {stops[each]} on" for each in waiting])
        topics = " ".join(sorted({each.topic for each in waiting}))
        step = f"`kafkalite topic describe {topics} --offsets` shows it, --isolation {UNCOMMITTED} prints the records"
        click.echo(f"not printed: {names}, where an open transaction begins; {step}", err=True)


async def offsets_of(admin: Admin, partitions: Mapping[TopicPartition, int], level: str) -> dict[TopicPartition, int]:
    """Return the ends of partitions for readers of an isolation level, as far as leaders answer."""
    asked = dict.fromkeys(partitions, LATEST)
    outcomes = await admin.partitions.offsets(asked, isolation_level=level, timeout=ANSWER_S)
    return {each: outcomes.results[each].offset for each in partitions if each not in outcomes.errors}
