"""`produce` beside a line that cannot be stored: which lines are stored, and what the message says."""

import re

import pytest

from tests.story.cli.conftest import Run

TOO_LARGE = "x" * 1_100_000  # max.message.bytes is 1,048,588
FAR = 9_999_999_999_999  # ms since 1970


def lines_with(count: int, failed: int, text: str, form: str = "{}") -> str:
    """Input of `count` lines, of which one, counted from 1, is `text`."""
    return "".join(f"{text if number == failed else form.format(number)}\n" for number in range(1, count + 1))


CASES = {
    "too large": (lines_with(10, 5, TOO_LARGE), 5, [], ["-p", "1"]),
    "too large, in several requests": (lines_with(40_000, 20_001, TOO_LARGE), 20_001, [], ["-p", "1"]),
    "too large, compressed": (lines_with(40, 20, TOO_LARGE), 20, ["-z", "gzip"], ["-c", "max.message.bytes=900"]),
    "too large for the client": (lines_with(9, 3, "x" * 900), 3, ["-X", "max.request.size=500"], ["-p", "2"]),
    "keys of three partitions": (lines_with(60, 31, f"k:{TOO_LARGE}", "k{0}:{0}"), 31, ["-k", ":"], ["-p", "3"]),
    "many keys of three partitions": (
        lines_with(30_000, 15_001, f"k:{TOO_LARGE}", "k{0}:{0}"),
        15_001,
        ["-k", ":"],
        ["-p", "3"],
    ),
    "a time far from now": (
        lines_with(10, 5, f'{{"value": 5, "timestamp": {FAR}}}', '{{"value": {}}}'),
        5,
        ["--json"],
        ["-p", "2", "-c", "message.timestamp.after.max.ms=3600000"],
    ),
    "no key in a compacted topic": (
        lines_with(10, 5, '{"value": 5}', '{{"key": "k", "value": {}}}'),
        5,
        ["--json"],
        ["-p", "2", "-c", "cleanup.policy=compact"],
    ),
    "no JSON": (lines_with(3000, 2000, "no JSON", '{{"value": {}}}'), 2000, ["--json"], ["-p", "3"]),
    "no separator": (lines_with(3000, 2000, "no separator", "k={}"), 2000, ["-k", "="], ["-p", "3"]),
    "no such partition": (
        lines_with(10, 5, '{"value": 5, "partition": 7}', '{{"value": {}}}'),
        5,
        ["--json"],
        ["-p", "2"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lines_before_a_failed_one_are_stored_and_none_behind_it(kafkalite: Run, case: str) -> None:
    text, failed, options, topic_options = CASES[case]
    topic = re.sub(r"\W+", "-", case)
    kafkalite("topic", "create", topic, *topic_options)
    error = kafkalite("produce", topic, *options, stdin=text, code=2).stderr
    stored = kafkalite("consume", topic, "-e").stdout.split()
    assert sorted(map(int, stored)) == list(range(1, failed))
    assert re.match(rf"kafkalite: line {failed}\b", error), error
    report = f"; {failed - 1} record(s) were acknowledged: lines 1 to {failed - 1}; continue with line {failed}\n"
    assert error.endswith(report) and error.count("\n") == 1, error


def test_lines_of_a_file_are_continued_after_the_failed_one(kafkalite: Run) -> None:
    kafkalite("topic", "create", "continued")
    kafkalite("produce", "continued", stdin=f"1\n2\n{TOO_LARGE}\n4\n", code=2)
    kafkalite("produce", "continued", stdin="3\n4\n")
    assert kafkalite("consume", "continued", "-e").stdout.split() == ["1", "2", "3", "4"]


def test_a_first_line_that_fails_leaves_the_topic_empty(kafkalite: Run) -> None:
    kafkalite("topic", "create", "first")
    error = kafkalite("produce", "first", stdin=f"{TOO_LARGE}\n2\n", code=2).stderr
    assert error.startswith("kafkalite: line 1: first-0: ")
    assert error.endswith("; 0 record(s) were acknowledged; continue with line 1\n")
    assert kafkalite("consume", "first", "-e").stdout == ""


def test_batches_above_the_limit_of_a_topic_are_divided(kafkalite: Run) -> None:
    """Each of the records is small enough."""
    kafkalite("topic", "create", "small", "-c", "max.message.bytes=2000")
    sent = kafkalite("produce", "small", stdin=lines_with(5_000, 0, "")).stderr
    assert sent == "sent 5000 record(s) to small\n"
    assert kafkalite("consume", "small", "-e").stdout.split() == [str(number) for number in range(1, 5_001)]
