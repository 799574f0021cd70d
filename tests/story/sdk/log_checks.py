"""What must hold for the records that producers of a simulation have sent, and for what the logs contain."""

from collections.abc import Iterable, Mapping, Sequence

from kafkalite.errors import KafkaError
from tests.story.sdk.simulated_producer import Sent, named

Partition = tuple[str, int]
Log = Sequence[tuple[int, bytes | None]]  # offset and value of each record


def check_outcomes(sent: Iterable[Sent]) -> None:
    """Every record has exactly one outcome."""
    for each in sent:
        assert each.awaitable.done(), f"{each.producer}:{each.number} has no outcome"
        assert each.outcomes <= 1, f"{each.producer}:{each.number} has {each.outcomes} outcomes"
        if not each.cancelled:
            error = each.awaitable.exception()
            assert error is None or isinstance(error, KafkaError), repr(error)


def check_logs(sent: Iterable[Sent], logs: Mapping[Partition, Log]) -> None:
    """Acknowledged records are in the log at their offset; no record is there twice; the order of a producer holds."""
    positions: dict[tuple[str, int], tuple[Partition, int]] = {}
    for partition, log in logs.items():
        last: dict[str, int] = {}
        for offset, value in log:
            producer, number = named(value)
            before = positions.get((producer, number))
            assert before is None, f"{producer}:{number} is at {before} and at {partition} {offset}"
            positions[producer, number] = partition, offset
            assert last.get(producer, -1) < number, f"{producer}:{number} is behind {last[producer]} in {partition}"
            last[producer] = number
    for each in sent:
        if each.cancelled or each.awaitable.exception() is not None:
            continue
        metadata = each.awaitable.result()
        found = positions.get((each.producer, each.number))
        assert found is not None, f"{each.producer}:{each.number} was acknowledged and is lost"
        expected = (metadata.topic, metadata.partition), metadata.offset
        assert metadata.offset < 0 or found == expected, f"{each.producer}:{each.number} is at {found}, not {expected}"
