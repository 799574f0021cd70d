"""Apache Kafka's console and admin tools, each a Java process; class names and options differ between 4.4 and 3.9."""

from __future__ import annotations

from collections.abc import Sequence

from tests.kit import jvm
from tests.kit.clients.model import EARLIEST, Record, Refused
from tests.kit.secured.logins import java_file

JAVA_VERSIONS = (jvm.CURRENT, jvm.PREVIOUS)
CLASSES = {
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "acls": "org.apache.kafka.tools.AclCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
CLASSES_3 = {
    "acls": "kafka.admin.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
}
CONFIG_OPTIONS_3 = {"console-consumer": "--consumer.config", "console-producer": "--producer.config"}
WITHOUT_LOGIN = ("cluster", "leader-election")  # the option has another name in each version
TOOL_S = 120.0
READ_MS = 20_000
NULL = "<null>"


class JavaTools:
    """The tools of one version against one broker."""

    def __init__(self, version: str, address: str) -> None:
        self.version = version
        self.name = f"kafka-{version}"
        self.address = address
        self._is_3 = version.startswith("3.")

    def run(self, tool: str, *args: str, stdin: str | None = None) -> str:
        """The tool's standard output; raises `Refused` (code -1: the tools print names only) if it fails."""
        main_class = (CLASSES_3 if self._is_3 else {}).get(tool, CLASSES[tool])
        whole = ["--bootstrap-server", self.address, *self._login(tool), *args]
        done = jvm.run_tool(self.version, main_class, whole, stdin=stdin, timeout=TOOL_S)
        if done.returncode != 0:
            raise Refused(-1, f"{tool}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _login(self, tool: str) -> list[str]:
        """The option with the settings of a login, where the broker needs one and both versions have an option."""
        option = (CONFIG_OPTIONS_3 if self._is_3 else {}).get(tool, "--command-config")
        file = None if tool in WITHOUT_LOGIN else java_file(self.address)
        return [] if file is None else [option, str(file)]

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", acks: str = "all") -> None:
        """Console producer; keys, headers and values are text without tabs, None is a tombstone."""
        option = "--property" if self._is_3 else "--reader-property"
        reader = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL, "headers.delimiter": "\t"}
        reader["headers.separator"] = ","
        properties = [part for key, value in reader.items() for part in (option, f"{key}={value}")]
        lines = "".join(
            "\t".join([",".join(f"{k}:{(v or b'').decode()}" for k, v in r.headers), text(r.key), text(r.value)]) + "\n"
            for r in records
        )
        acks_option = ["--request-required-acks", acks]
        self.run(
            "console-producer", "--topic", topic, "--compression-codec", codec, *acks_option, *properties, stdin=lines
        )

    def read(self, topic: str, count: int, *, partition: int = 0, start: int | str = EARLIEST) -> list[Record]:
        """Console consumer, assigned its partition, until it has `count` records."""
        option = "--property" if self._is_3 else "--formatter-property"
        shown = [f"print.{what}=true" for what in ("timestamp", "partition", "offset", "headers", "key")]
        properties = [part for p in (*shown, f"null.literal={NULL}", "headers.separator=,") for part in (option, p)]
        begin = ["--topic", topic, "--partition", str(partition), "--offset", str(start)]
        limits = ["--max-messages", str(count), "--timeout-ms", str(READ_MS)]
        return [record_of(line) for line in self.run("console-consumer", *begin, *limits, *properties).splitlines()]

    def offsets(self, *args: str) -> dict[tuple[str, int], int | None]:
        """kafka-get-offsets: (topic, partition) -> offset, None where it prints none."""
        found = {}
        for line in self.run("get-offsets", *args).splitlines():
            topic, partition, offset = line.rsplit(":", 2)
            found[topic, int(partition)] = int(offset) if offset else None
        return found


def text(value: bytes | None) -> str:
    return NULL if value is None else value.decode()


def record_of(line: str) -> Record:
    """One line of the console consumer: time, partition, offset, headers, key, value."""
    time, partition, offset, headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [pair.split(":", 1) for pair in headers.split(",")]
    return Record(
        value=None if value == NULL else value.encode(),
        key=None if key == NULL else key.encode(),
        headers=tuple((name, content.encode()) for name, content in pairs),
        timestamp_ms=int(time.split(":")[1]),
        partition=int(partition.removeprefix("Partition:")),
        offset=int(offset.removeprefix("Offset:")),
    )
