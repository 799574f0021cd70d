"""Validates logs with Apache Kafka's DumpLogSegments. It exits 0 also after errors, so its output is parsed here.

Invariant: a line that is not understood is a problem, so a new word of the tool can never pass as a clean result.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.jvm import CURRENT, JvmError, run_tool

TOOL = {3: "kafka.tools.DumpLogSegments", 4: "org.apache.kafka.tools.DumpLogSegments"}
HARMLESS = (
    re.compile(r"Dumping .+"),
    re.compile(r"Log starting offset: \d+"),
    re.compile(r"offset: \d+ position: \d+"),
    re.compile(r"timestamp: -?\d+ offset: \d+"),
    re.compile(r"producerId: -?\d+ producerEpoch: .+"),
    re.compile(r"version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+"),
    re.compile(r".+ passed the sanity check\."),
    re.compile(r".+index is empty\."),
    # The tool counts from -1 in every file, so it prints this for each segment that does not begin at 0.
    re.compile(r"Non-consecutive offsets in .+"),
    re.compile(r" *-1 is followed by \d+"),
    re.compile(r""),
)
BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*position: (\d+) .*isvalid: true.*")


@dataclass
class Report:
    """The output of the tool: `found` as (file, base offset, last offset, records), `problems` in its own words."""

    found: list[tuple[str, int, int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dumped: Counter[str] = field(default_factory=Counter)

    @property
    def batches(self) -> int:
        return len(self.found)

    @property
    def records(self) -> int:
        return sum(count for _, _, _, count in self.found)


def parse(output: str) -> Report:
    """Read the output of one run."""
    report = Report()
    file = ""
    for line in output.splitlines():
        if line.startswith("Dumping "):
            file = Path(line.removeprefix("Dumping ")).name
            report.dumped[Path(file).suffix] += 1
        if found := BATCH.fullmatch(line):
            report.found.append((file, int(found[1]), int(found[2]), int(found[3])))
        elif not any(pattern.fullmatch(line) for pattern in HARMLESS):
            report.problems.append(line.strip())
    if not report.dumped:
        report.problems.append("the tool dumped nothing")
    return report


def dump(directory: Path | str, version: str = CURRENT) -> Report:
    """Have every file of a partition's directory dumped. Raises JvmError where the tool itself fails."""
    return dump_files(sorted(path for path in Path(directory).iterdir() if path.suffix in SUFFIXES), version)


SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def dump_files(paths: Iterable[Path], version: str = CURRENT) -> Report:
    """Have these files dumped, every batch walked and every index entry looked up in its log."""
    files = ",".join(map(str, paths))
    done = run_tool(version, TOOL[4 if int(version.split(".")[0]) >= 4 else 3], ["--files", files, "--deep-iteration"])
    if done.returncode != 0:
        raise JvmError(f"DumpLogSegments failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return parse(_without_records(done.stdout) + "\n" + done.stderr)  # it reports some defects on stderr


def _without_records(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if not line.startswith("| offset:"))
