"""Topics with offsets and sizes, deleted records, settings, the cluster, several groups, completion."""

import json
import re
import socket
import subprocess
from collections.abc import Callable

import pytest
from click.shell_completion import BashComplete
from kafkalite_sdk.blocking import Admin

from kafkalite.cli import completion
from kafkalite.cli.main import main
from kafkalite.testing.thread import BrokerThread
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run


def objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_several_topics_are_created_unless_they_exist(kafkalite: Run) -> None:
    assert kafkalite("topic", "create", "a1", "-p", "2").stdout == "created a1 with 2 partition(s)\n"
    done = kafkalite("topic", "create", "a1", "a2", "--if-not-exists")
    assert done.stdout == "created a2 with 1 partition(s)\na1 exists\n"
    again = kafkalite("topic", "create", "a1", code=2).stderr
    assert again.endswith("(TOPIC_ALREADY_EXISTS); --if-not-exists leaves a topic that exists as it is\n")
    done = kafkalite("topic", "create", "a1", "a3", code=2)
    assert done.stdout == "created a3 with 1 partition(s)\n" and "a1: " in done.stderr
    assert "INVALID_TOPIC" in kafkalite("topic", "create", "a/b", "--if-not-exists", code=2).stderr


def test_description_with_offsets_sizes_and_effective_configs(kafkalite: Run) -> None:
    kafkalite("topic", "create", "d1", "-p", "2", "-c", "retention.ms=-1")
    kafkalite("topic", "create", "d2")
    kafkalite("produce", "d1", "-p", "1", stdin="one\ntwo\n")
    first, second = objects(kafkalite("topic", "describe", "d1", "d2", "--offsets", "--all-configs", "--json").stdout)
    empty, full = first["partitions"]
    assert (empty["log_start_offset"], empty["log_end_offset"], empty["size"]) == (0, 0, 0)
    assert (full["log_start_offset"], full["log_end_offset"]) == (0, 2) and full["size"] > 60
    assert (first["configs"]["retention.ms"], first["config_sources"]["retention.ms"]) == ("-1", "TOPIC")
    assert second["config_sources"]["retention.ms"] == "DEFAULT"
    shown = kafkalite("topic", "describe", "d1", "d2", "-o", "-a").stdout
    assert "  retention.ms=-1  (TOPIC)\n" in shown and "  cleanup.policy=delete  (DEFAULT)\n" in shown
    assert shown.count("LogStartOffset  LogEndOffset  LastStableOffset  Size\n") == 2
    assert "nowhere: " in kafkalite("topic", "describe", "d1", "nowhere", code=2).stderr


def test_partitions_that_need_attention_are_described(kafkalite: Run) -> None:
    kafkalite("topic", "create", "sync", "-p", "2")
    assert (
        kafkalite("topic", "describe", "--under-replicated", "--unavailable", "--under-min-isr", "--json").stdout == ""
    )
    found = objects(kafkalite("topic", "describe", "sync", "--at-min-isr", "--json").stdout)
    assert [(each["partition"], each["isr"], each["min_isr"], each["problems"]) for each in found] == [
        (0, [1], 1, ["at-min-isr"]),
        (1, [1], 1, ["at-min-isr"]),
    ]
    assert "nowhere" in kafkalite("topic", "describe", "nowhere", "--at-min-isr", code=2).stderr
    assert "--under-min-isr" in kafkalite("topic", "describe", code=2).stderr


def test_leaders_are_elected_by_request(kafkalite: Run) -> None:
    kafkalite("topic", "create", "led", "-p", "2")
    assert kafkalite("topic", "elect-leaders", "led:1").stdout == "1 partition(s) have this leader already\n"
    assert "already" in kafkalite("topic", "elect-leaders").stdout
    assert "have this leader already" in kafkalite("topic", "elect-leaders", "led:0", "--unclean").stdout
    assert "not 7" in kafkalite("topic", "elect-leaders", "led:7", code=2).stderr
    assert "needs the partitions" in kafkalite("topic", "elect-leaders", "--unclean", code=2).stderr


def test_levels_of_loggers_are_changed_while_the_broker_runs(kafkalite: Run) -> None:
    name = "kafkalite.requests"

    def level() -> object:
        (found,) = objects(kafkalite("config", "describe", "broker-logger:1", name, "--json").stdout)
        return found["key"], found["value"], found["source"]

    before = level()
    assert kafkalite("config", "alter", "broker-logger:1", "--set", f"{name}=DEBUG", "--dry-run").stdout == ""
    assert level() == before
    done = kafkalite("config", "alter", "broker-logger:1", "--set", f"{name}=DEBUG")
    assert done.stdout == "altered broker-logger:1\n"
    assert level() == (name, "DEBUG", "DYNAMIC_BROKER_LOGGER")
    assert "root " in kafkalite("config", "describe", "broker-logger:1").stdout
    kafkalite("config", "alter", "broker-logger:1", "--unset", name)
    assert level() == before
    refused = kafkalite("config", "alter", "broker-logger:1", "--set", "root=LOUD", code=2).stderr
    assert "LOUD" in refused and "DEBUG, ERROR, FATAL, INFO, TRACE, WARN" in refused
    assert "broker-logger:x" in kafkalite("config", "describe", "broker-logger:x", code=2).stderr
    assert "9" in kafkalite("config", "describe", "broker-logger:9", code=2).stderr


def test_records_before_a_position_are_deleted(kafkalite: Run) -> None:
    kafkalite("topic", "create", "trimmed", "-p", "2")
    kafkalite("produce", "trimmed", "-p", "0", stdin="0\n1\n2\n")
    planned = kafkalite("topic", "delete-records", "trimmed", "--before", "-1", "--dry-run")
    assert [line.split() for line in planned.stdout.splitlines()[1:]] == [
        ["trimmed", "0", "0", "2"],
        ["trimmed", "1", "0", "0"],
    ]
    assert planned.stderr == "nothing was deleted: --dry-run\n"
    beyond = kafkalite("topic", "delete-records", "trimmed", "--before", "22", code=2).stderr
    assert "22: trimmed-0 ends at 3, trimmed-1 ends at 0; nothing was deleted" in beyond
    assert kafkalite("consume", "trimmed", "-e").stdout == "0\n1\n2\n"
    assert kafkalite("topic", "delete-records", "trimmed:0", "--before", "2", "--json").stdout == (
        '{"topic": "trimmed", "partition": 0, "prior_start": 0, "new_start": 2}\n'
    )
    assert kafkalite("consume", "trimmed", "-e").stdout == "2\n"
    assert (
        "has partitions 0 to 1, not 7"
        in kafkalite("topic", "delete-records", "trimmed:7", "--before", "0", code=2).stderr
    )


def test_effective_settings_and_dynamic_changes(kafkalite: Run) -> None:
    (partitions,) = objects(kafkalite("config", "describe", "broker:1", "num.partitions", "--json").stdout)
    assert partitions == {
        "key": "num.partitions",
        "value": "1",
        "source": "DEFAULT",
        "read_only": True,
        "sensitive": False,
    }
    changed = kafkalite("config", "describe", "broker:1").stdout
    assert "auto.create.topics.enable" in changed and "num.io.threads" not in changed, "only what was changed"
    assert "log.retention.ms" in kafkalite("config", "describe", "broker:1", "--all").stdout
    assert kafkalite("config", "alter", "brokers", "-s", "log.retention.ms=5000").stdout == "altered brokers\n"
    (retention,) = objects(kafkalite("config", "describe", "broker:1", "log.retention.ms", "--json").stdout)
    assert (retention["value"], retention["source"]) == ("5000", "DYNAMIC_DEFAULT_BROKER")
    done = kafkalite("config", "alter", "brokers", "-u", "log.retention.ms", "--dry-run")
    assert (done.stdout, done.stderr) == ("", "nothing was changed: --dry-run\n")
    kafkalite("config", "alter", "brokers", "--unset", "log.retention.ms")
    (retention,) = objects(kafkalite("config", "describe", "broker:1", "log.retention.ms", "--json").stdout)
    assert retention["source"] == "DEFAULT"


def test_wrong_use_of_config_is_one_line(kafkalite: Run) -> None:
    for args, text in (
        (("describe", "broker"), "'broker' is not a resource; write broker:ID"),
        (("describe", "broker:1", "no.such.key"), "broker:1 has no setting no.such.key"),
        (("describe", "topic:nowhere"), "topic:nowhere: "),
        (("alter", "broker:1"), "nothing to alter"),
        (("alter", "topic:nowhere", "-s", "retention"), "write KEY=VALUE"),
        (("alter", "broker:1", "-s", "log.retention.ms=soon"), "broker:1: "),
    ):
        said = kafkalite("config", *args, code=2).stderr
        assert text in said and said.count("\n") == 1


def test_cluster_and_log_directories(kafkalite: Run, broker: BrokerThread) -> None:
    host, port = broker.address.split(":")
    (found,) = objects(kafkalite("cluster", "describe", "--json").stdout)
    assert found == {"broker": 1, "host": host, "port": int(port), "rack": None, "controller": True}
    assert ", 1 broker(s)\n" in kafkalite("cluster", "describe").stdout
    kafkalite("produce", "stored", stdin="one\n")
    (directory,) = objects(kafkalite("cluster", "log-dirs", "--json").stdout)
    assert directory["state"] == "online" and directory["partitions"] >= 1 and directory["bytes"] > 60
    rows = objects(kafkalite("cluster", "log-dirs", "--partitions", "--broker", "1", "--json").stdout)
    (stored,) = [row for row in rows if row["topic"] == "stored"]
    table = kafkalite("cluster", "log-dirs", "--partitions").stdout
    assert stored["future"] is False and all(line.endswith("  no") for line in table.splitlines()[1:])
    assert stored["bytes"] > 60 and stored["directory"] == directory["directory"]


def test_several_groups_their_summary_and_deleted_offsets(kafkalite: Run) -> None:
    kafkalite("topic", "create", "g1", "-p", "2")
    kafkalite("produce", "g1", "-p", "0", stdin="1\n2\n3\n")
    kafkalite("produce", "g2", stdin="1\n")
    for group in ("north", "south"):
        kafkalite("group", "reset", group, "--to", "earliest", "-t", "g1", "-t", "g2")
    kafkalite("group", "reset", "south", "--to", "latest", "-t", "g2")
    shown = kafkalite("group", "describe", "north", "south").stdout
    assert "north: type classic" in shown and "south: type classic" in shown
    north, south = objects(kafkalite("group", "describe", "north", "south", "--summary", "--json").stdout)
    assert (north["group"], north["partitions"], north["lag"], north["lag_max"]) == ("north", 3, 4, 3)
    assert (south["lag"], south["members"]) == (3, 0)
    done = kafkalite("group", "describe", "north", "nobody", "--summary", code=2)
    assert "north" in done.stdout and "nobody: " in done.stderr

    planned = kafkalite("group", "offsets", "delete", "north", "-t", "g1:0", "--dry-run")
    assert [line.split() for line in planned.stdout.splitlines()[1:]] == [["north", "g1", "0", "0"]]
    assert kafkalite("group", "offsets", "delete", "north", "-t", "g1:0").stdout == planned.stdout
    assert kafkalite("group", "offsets", "export", "north", "--csv").stdout == "g1,1,0\ng2,0,0\n"
    assert (
        "has no committed offsets of g1:0"
        in kafkalite("group", "offsets", "delete", "north", "-t", "g1:0", code=2).stderr
    )
    assert "GROUP_ID_NOT_FOUND" in kafkalite("group", "offsets", "delete", "nobody", "-t", "g1", code=2).stderr


def test_commands_and_options_are_completed() -> None:
    for words, expected in (("kafkalite con", ["config", "consume"]), ("kafkalite consume --form", ["--format"])):
        environ = {**ENVIRON, "_KAFKALITE_COMPLETE": "bash_complete", "COMP_WORDS": words}
        environ["COMP_CWORD"] = str(len(words.split()) - 1)
        done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        assert sorted(line.partition(",")[2] for line in done.stdout.splitlines()) == expected


def complete(*words: str, **environ: str) -> list[str]:
    """What bash completes the last word to; nothing may be printed beside it."""
    variables = {**ENVIRON, **environ, "_KAFKALITE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words)}
    variables["COMP_CWORD"] = str(len(words) - 1)
    done = subprocess.run(COMMAND, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stderr == ""
    return sorted(line.partition(",")[2] for line in done.stdout.splitlines() if line)


@pytest.fixture(scope="module")
def tab_topics(broker: BrokerThread) -> None:
    with Admin(broker.address) as admin:
        admin.topics.create("tab-orders", "tab-payments").check()


@pytest.fixture
def completed(broker: BrokerThread, tab_topics: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What the last word is completed to, in this process, with the time that a loaded machine needs."""
    monkeypatch.setattr(completion, "ANSWER_S", float(TIMEOUT_S))
    monkeypatch.setenv("KAFKALITE_BOOTSTRAP", broker.address)
    shell = BashComplete(main, {}, "kafkalite", "_KAFKALITE_COMPLETE")
    return lambda *words: sorted(each.value for each in shell.get_completions(list(words[:-1]), words[-1]))


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "describe"),
        ("topic", "alter"),
        ("topic", "delete"),
        ("topic", "delete-records"),
        ("consume",),
        ("produce",),
        ("group", "create", "g", "-t"),
        ("group", "reset", "g", "--topic"),
        ("group", "rewind", "g", "--topic"),
        ("group", "offsets", "delete", "g", "--topic"),
    ],
    ids=" ".join,
)
def test_names_of_topics_are_completed(completed: Callable[..., list[str]], command: tuple[str, ...]) -> None:
    assert completed(*command, "tab-") == ["tab-orders", "tab-payments"]
    assert completed(*command, "tab-p") == ["tab-payments"]
    assert completed(*command, "tab-x") == []


def test_completed_topics_are_not_given_twice_and_internal_ones_are_asked_for(
    kafkalite: Run, broker: BrokerThread, completed: Callable[..., list[str]]
) -> None:
    kafkalite("group", "create", "tab", "-t", "tab-orders")
    assert completed("consume", "tab-orders", "tab-") == ["tab-payments"]
    assert completed("consume", "-b", broker.address, "__") == ["__consumer_offsets"]
    assert not {each for each in completed("consume", "") if each.startswith("_")}


@pytest.mark.parametrize(
    "command",
    [
        ("group", "describe"),
        ("group", "delete"),
        ("group", "reset"),
        ("group", "rewind"),
        ("group", "offsets", "export"),
        ("group", "offsets", "import", "-g"),
        ("group", "offsets", "delete"),
        ("consume", "tab-orders", "--group"),
    ],
    ids=" ".join,
)
def test_names_of_groups_are_completed(
    broker: BrokerThread, completed: Callable[..., list[str]], command: tuple[str, ...]
) -> None:
    with Admin(broker.address) as admin:
        admin.groups.create("tabgroup-a", topics=["tab-orders"])
        admin.groups.create("tabgroup-b", topics=["tab-orders"])
    assert completed(*command, "tabgroup-") == ["tabgroup-a", "tabgroup-b"]
    assert completed(*command, "tabgroup-b") == ["tabgroup-b"]
    assert completed(*command, "tabgroup-x") == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no such address", "host.invalid:9092"])
def test_completion_without_a_broker_prints_nothing(address: str) -> None:
    assert complete("kafkalite", "consume", "tab-", KAFKALITE_BOOTSTRAP=address) == []


def test_completion_with_settings_that_cannot_be_read_prints_nothing() -> None:
    assert complete("kafkalite", "consume", "-X", "nonsense", "tab-") == []
    assert complete("kafkalite", "consume", "--client-config", "missing.properties", "tab-") == []


def test_completion_ends_while_a_broker_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert complete("kafkalite", "consume", "tab-", KAFKALITE_BOOTSTRAP=address) == []
        assert complete("kafkalite", "group", "describe", "tab-", KAFKALITE_BOOTSTRAP=address) == []


@pytest.mark.parametrize(
    "args",
    [
        ("config", "describe", "broker:7"),
        ("config", "alter", "broker:7", "--set", "num.partitions=3"),
        ("cluster", "log-dirs", "--broker", "7"),
    ],
)
def test_a_broker_that_does_not_exist_is_an_error_at_once(kafkalite: Run, args: tuple[str, ...]) -> None:
    said = kafkalite(*args, code=2).stderr
    assert re.fullmatch(r"kafkalite: broker 7: not in the cluster, or not running; the cluster has broker \d+\n", said)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("create", "t", "-p", "0"), "--partitions is 0, expected a number above 0"),
        (("create", "t", "-p", "-1"), "--partitions is -1, expected a number above 0"),
        (("create", "t", "-r", "0"), "--replication-factor is 0, expected a number above 0"),
        (("alter", "t", "-p", "-1"), "--partitions is -1, expected a number above 0"),
    ],
)
def test_numbers_of_a_topic_are_checked(kafkalite: Run, args: tuple[str, ...], text: str) -> None:
    assert kafkalite("topic", *args, code=2).stderr == f"kafkalite: {text}\n"


def test_a_replication_factor_that_was_given_is_not_asked_for(kafkalite: Run) -> None:
    said = kafkalite("topic", "create", "replicated", "-r", "3", code=2).stderr
    assert said.startswith("kafkalite: replicated: ") and said.endswith(
        "(INVALID_REPLICATION_FACTOR); give another -r\n"
    )


@pytest.mark.parametrize("args", [("topic", "create"), ("consume", "-e"), ("produce",)])
def test_an_invalid_topic_name_is_explained(kafkalite: Run, args: tuple[str, ...]) -> None:
    said = kafkalite(*args, "bad topic!", code=2).stderr
    assert said.startswith("kafkalite: bad topic!: ") and "a name has up to 249 ASCII letters, digits" in said
