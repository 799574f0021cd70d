"""Which lines `produce` reports as stored."""

import asyncio

import pytest
from kafkalite_sdk._speedups.deliveries import ProducerBatch

from kafkalite.cli.records.limits import RecordLimits
from kafkalite.cli.records.lines import RecordLine
from kafkalite.cli.records.sent_lines import SentLines
from kafkalite.errors import KafkaTimeoutError

BATCH_BYTES = 10_000


class Sent:
    """Lines of two partitions: line N belongs to partition N % 2, in one batch for each."""

    def __init__(self, count: int) -> None:
        self.lines = SentLines()
        loop = asyncio.get_running_loop()
        self.batches = [ProducerBatch("t", partition, BATCH_BYTES, loop) for partition in (0, 1)]
        for number in range(1, count + 1):
            future = self.batches[number % 2].append(0, None, b"%d" % number)
            assert future is not None
            self.lines.append(future)

    def acknowledge(self, partition: int) -> None:
        self.batches[partition].acknowledge(0)

    def text(self) -> str:
        return self.lines.count_delivered().text()


async def test_all_lines() -> None:
    sent = Sent(4)
    sent.acknowledge(0), sent.acknowledge(1)
    assert sent.text() == "4 record(s) were acknowledged: lines 1 to 4; continue with line 5"
    sent.lines.forget_acknowledged()
    assert len(sent.lines) == 0
    assert sent.text() == "4 record(s) were acknowledged: lines 1 to 4; continue with line 5"


async def test_no_line() -> None:
    assert Sent(4).text() == "0 record(s) were acknowledged; continue with line 1"


async def test_lines_behind_the_first_open_one_are_named() -> None:
    sent = Sent(5)
    sent.acknowledge(1)
    text = "3 record(s) were acknowledged: line 1, line 3, line 5; continue with line 2, without these lines"
    assert sent.text() == text
    sent.lines.forget_acknowledged()
    assert (len(sent.lines), sent.lines.next_line, sent.text()) == (4, 6, text)


async def test_the_first_failed_line_is_the_one_that_is_named() -> None:
    sent = Sent(5)
    sent.acknowledge(1)
    sent.batches[0].fail(KafkaTimeoutError("late"))
    delivered = sent.lines.count_delivered()
    assert (delivered.failed_line, str(delivered.error)) == (2, "late")


async def test_many_lines_behind_the_first_open_one_are_shortened() -> None:
    sent = Sent(99)
    sent.acknowledge(0)
    lines = ", ".join(f"line {number}" for number in range(2, 22, 2))
    assert sent.text() == (
        f"49 record(s) were acknowledged: {lines} and others up to line 98; continue with line 1, without these lines"
    )


LIMITS = RecordLimits(1000, before_ms=3_600_000, after_ms=60_000)


@pytest.mark.parametrize(
    ("line", "limits", "doubtful"),
    [
        (RecordLine(None, b"x", [], None, None), LIMITS, False),
        (RecordLine(None, b"x" * 1000, [], None, None), LIMITS, True),
        (RecordLine(b"x" * 1000, None, [], None, None), LIMITS, True),
        (RecordLine(None, None, [("h", b"x" * 1000)], None, None), LIMITS, True),
        (RecordLine(None, b"x", [], None, 0), LIMITS, True),
        (RecordLine(None, b"x", [], None, 2**62), LIMITS, True),
        (RecordLine(None, b"x", [], None, 0), RecordLimits(), False),
        (RecordLine(None, b"x", [], None, 2**62), RecordLimits(), False),
        (RecordLine(None, b"x", [], None, None), RecordLimits(keyed=True), True),
        (RecordLine(b"", b"x", [], None, None), RecordLimits(keyed=True), False),
    ],
)
def test_records_that_a_topic_may_reject(line: RecordLine, limits: RecordLimits, doubtful: bool) -> None:
    assert limits.may_reject(line) is doubtful
    plain = line.key is None and line.timestamp_ms is None and not line.headers
    if plain and doubtful:
        assert len(line.value or b"") > limits.plain_bytes or limits.keyed
