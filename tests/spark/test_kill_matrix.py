"""An ingest has each offset once after kills of workers, commits, planners, brokers, executors and drivers.

Also after second drivers that start while the first one commits; and in the long form of the test, after brokers that
are suspended for longer than every timeout. A query does not notice the kill of a worker: Spark repeats its task.

The short form kills a worker, a commit and a planner in each phase, and draws the phases in which it kills the others.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import duckdb
import pyarrow.dataset
import pytest
from kafkalite_sdk.admin import LATEST
from kafkalite_sdk.blocking import Admin
from pyspark.sql import SparkSession
from pyspark_kafkalite.tables import ManifestTable
from pyspark_kafkalite.tables.locations import ATTEMPTS

from kafkalite.model import TopicPartition
from tests.fix_torture import SHORT
from tests.kit.seeds import sample_seed
from tests.spark import kill_driver
from tests.spark.killing import (
    BROKER,
    COMMIT,
    DRIVER,
    ELSEWHERE,
    EXECUTOR,
    PLANNER,
    SECOND_DRIVER,
    SUSPENDED,
    TASK_ATTEMPTS,
    WITHOUT_ATTEMPTS,
    WORKER,
    Kill,
    Kills,
)
from tests.spark.restarting import restarting_broker, run_drivers

TOPIC = "killed"
ALL = (*WORKER, *COMMIT, *PLANNER)
BROKERS = tuple(Kill(phase, BROKER) for phase in (WORKER[0], COMMIT[1], PLANNER[0]))
SECOND_DRIVERS = tuple(Kill(phase, SECOND_DRIVER) for phase in COMMIT[1:3])
DRIVERS = tuple(Kill(phase, DRIVER) for phase in (COMMIT[0], COMMIT[2], COMMIT[3], COMMIT[4], COMMIT[5]))
SUSPENSIONS = tuple(Kill(phase, SUSPENDED) for phase in (PLANNER[0], WORKER[0]))  # 20 s each
EXECUTORS = tuple(Kill(phase, EXECUTOR) for phase in (WORKER[1], WORKER[4]))


class Killed:
    """A table, and the drivers that write it."""

    def __init__(self, directory: Path, plan: Sequence[Kill]) -> None:
        self.directory = directory
        self.table = directory / "table"
        self.kills = Kills(directory / "kills")
        self.kills.directory.mkdir()
        (self.kills.directory / "plan.json").write_text(json.dumps(plan))

    def run(self, master: str) -> None:
        """Start drivers until one has ended well; each one before was killed in its turn."""
        with restarting_broker(self.directory / "broker", self.kills.directory, TOPIC) as broker:
            command = [sys.executable, "-m", "tests.spark.kill_driver", master, broker.address, TOPIC]
            run_drivers([*command, str(self.directory)], self.directory / "driver.log", self.kills)
            names = dict.fromkeys((TopicPartition(TOPIC, each) for each in range(kill_driver.PARTITIONS)), LATEST)
            with Admin(broker.address) as admin:
                self.ends = {
                    each.partition: found.offset for each, found in admin.partitions.offsets(names).check().items()
                }

    def verify_kills(self) -> None:
        """Each kill has happened in its phase, and what its process has left was found by another one."""
        plan = self.kills.plan
        assert self.kills.done() == len(plan)
        for number, kill in enumerate(plan):
            marker = self.kills.marker(number)
            assert marker["phase"] == kill.phase
            seen = json.loads((self.kills.directory / f"{number:04}.seen").read_text())
            assert seen == marker["attempts"]
            no_file = kill.target in ELSEWHERE or kill.phase in (*WITHOUT_ATTEMPTS, COMMIT[5])
            assert seen or no_file, f"kill {number} has left no file"

    def verify_files(self) -> None:
        """The table has the files of its commits and no others."""
        assert list((self.table / ATTEMPTS).iterdir()) == []
        assert sorted(map(str, self.table.glob("*.parquet"))) == sorted(ManifestTable(self.table).files())

    def verify_rows(self, spark: SparkSession) -> None:
        """Each offset is in the table once, with its value, for three readers."""
        expected = Counter(
            (partition, offset, b"%d:%d" % (partition, offset))
            for partition, end in self.ends.items()
            for offset in range(end)
        )
        assert len(expected) >= kill_driver.RECORDS * kill_driver.PARTITIONS
        columns = ["_partition", "_offset", "value"]
        arrow = pyarrow.dataset.dataset(self.table, format="parquet").to_table(columns=columns)
        assert Counter(zip(*(arrow[each].to_pylist() for each in columns), strict=True)) == expected
        in_spark = spark.read.parquet(str(self.table)).select(*columns).collect()
        assert Counter((row[0], row[1], bytes(row[2])) for row in in_spark) == expected
        with duckdb.connect() as connection:
            found = connection.sql(f"select {', '.join(columns)} from '{self.table}/*.parquet'").fetchall()
        assert Counter((partition, offset, bytes(value)) for partition, offset, value in found) == expected


def shuffled(count: int, seed: float) -> list[Kill]:
    """Kills in all phases, in an order of their own."""
    random = Random(seed)
    kills: list[Kill] = []
    while len(kills) < count:
        kills += [Kill(phase) for phase in random.sample(ALL, len(ALL))]
    return kills[:count]


@pytest.fixture(scope="session")
def long_kills(request: pytest.FixtureRequest) -> int:
    """How many workers, commits and planners are killed in the long form, else 0."""
    wanted: int = request.config.getoption("kills")
    return 0 if wanted == SHORT["kills"] else wanted


@pytest.fixture
def drawn() -> Random:
    """What the short form draws."""
    seed = sample_seed()
    print(f"KAFKALITE_SEED={seed} repeats the phases")
    return Random(seed)


def run(spark: SparkSession, killed: Killed, master: str) -> None:
    killed.run(master)
    killed.verify_kills()
    killed.verify_files()
    killed.verify_rows(spark)


def test_each_offset_is_there_once_after_kills_of_workers_commits_brokers_and_drivers(
    spark: SparkSession, tmp_path: Path, long_kills: int, drawn: Random
) -> None:
    """Trap 14: only `local[2,4]` repeats a task; `local[2]` fails the query."""
    if long_kills:
        plan = [*shuffled(long_kills // 2, seed=1), *BROKERS, *SECOND_DRIVERS, *SUSPENSIONS, *DRIVERS]
    else:
        others = [drawn.choice(BROKERS), drawn.choice(SECOND_DRIVERS), drawn.choice(DRIVERS)]
        plan = [*shuffled(len(ALL), drawn.random()), *others]
    run(spark, Killed(tmp_path, plan), f"local[2,{TASK_ATTEMPTS}]")


def test_each_offset_is_there_once_after_kills_in_executors(
    spark: SparkSession, tmp_path: Path, long_kills: int, drawn: Random
) -> None:
    """The short form has one executor with two tasks, as each one is a JVM, and kills it once."""
    if long_kills:
        plan = [*EXECUTORS, *shuffled(long_kills - long_kills // 2, seed=2)]
        run(spark, Killed(tmp_path, plan), "local-cluster[2,1,1024]")
    else:
        plan = [drawn.choice(EXECUTORS), *(Kill(phase) for phase in drawn.sample(WORKER, 2))]
        run(spark, Killed(tmp_path, plan), "local-cluster[1,2,1024]")
