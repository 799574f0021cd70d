"""Files, environment and command line."""

import random
from pathlib import Path

import pytest

from kafkalite.config.files import load, parse_toml
from kafkalite.config.keys import ConfigError
from kafkalite.config.sources.properties import parse_properties


def properties(text: str) -> dict[str, str]:
    return parse_properties("server.properties", text.encode())


class TestProperties:
    """As java.util.Properties.load documents it."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a=1", {"a": "1"}),
            ("a = 1", {"a": "1"}),
            ("a:1\n  b : 2", {"a": "1", "b": "2"}),
            ("a 1", {"a": "1"}),
            ("a\t=\f1 ", {"a": "1 "}),
            ("a", {"a": ""}),
            ("a=", {"a": ""}),
            ("a==b", {"a": "=b"}),
            ("# comment\n! comment\n\n  # comment\na=1", {"a": "1"}),
            ("a=1\\\n   2", {"a": "12"}),
            ("a=1\\\n# no comment", {"a": "1# no comment"}),
            ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
            ("a=1\\", {"a": "1"}),
            ("# comment \\\na=1", {"a": "1"}),
            ("a\\=b=c", {"a=b": "c"}),
            ("a\\ b\\:=c", {"a b:": "c"}),
            ("a=\\u00e4\\t\\n\\q", {"a": "ä\t\nq"}),
            ("a=\\ud83d\\ude00", {"a": "😀"}),
            ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
            ("a=1\na=2", {"a": "2"}),
            ("log.dirs=C:\\\\data", {"log.dirs": "C:\\data"}),
            ("", {}),
        ],
    )
    def test_properties_are_parsed_as_by_java(self, text: str, expected: dict[str, str]) -> None:
        assert properties(text) == expected

    def test_invalid_escape_error_names_its_line(self) -> None:
        with pytest.raises(ConfigError, match=r"server\.properties, line 3: \\u needs four"):
            properties("a=1\n\nb=\\u12")

    def test_properties_that_are_not_utf_8_are_latin_1(self) -> None:
        assert parse_properties("f", b"a=\xe4") == {"a": "ä"}

    def test_random_bytes_are_parsed_or_rejected(self) -> None:
        chance = random.Random(20)
        pieces = [b"a", b"=", b":", b" ", b"\\", b"\n", b"\r", b"u00e4", b"#", b"\xff", b"u12", b"\t", b"ud83d"]
        refused = 0
        for _ in range(3000):
            try:
                found = parse_properties("f", b"".join(chance.choices(pieces, k=chance.randint(0, 12))))
            except ConfigError:
                refused += 1
            else:
                "".join([*found, *found.values()]).encode()
        assert 0 < refused < 3000


class TestToml:
    def test_toml_tables_and_dotted_keys(self) -> None:
        text = b"""
            num.partitions = 3
            "log.retention.ms" = -1
            listeners = ["PLAINTEXT://:9092", "X://:9093"]
            [log]
            cleaner.min.cleanable.ratio = 0.25
            [auto.create.topics]
            enable = false
        """
        assert parse_toml("f.toml", text) == {
            "num.partitions": "3",
            "log.retention.ms": "-1",
            "listeners": "PLAINTEXT://:9092,X://:9093",
            "log.cleaner.min.cleanable.ratio": "0.25",
            "auto.create.topics.enable": "false",
        }

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"a = ", "not TOML"),
            (b"\xff", "not TOML"),
            (b"a = 2020-01-01", "a: a value of type date is not supported"),
            (b"a = [[1]]", "list"),
        ],
    )
    def test_invalid_files_are_rejected(self, data: bytes, words: str) -> None:
        with pytest.raises(ConfigError, match=rf"^f\.toml: .*{words}"):
            parse_toml("f.toml", data)


class TestPrecedence:
    def test_set_overrides_environment_overrides_file(self, tmp_path: Path) -> None:
        file = tmp_path / "server.properties"
        file.write_text("num.partitions=1\nbroker.rack=file\nfetch.max.bytes=2000\n")
        environment = {"KAFKALITE_NUM_PARTITIONS": "2", "KAFKALITE_BROKER_RACK": "environment", "NUM_PARTITIONS": "9"}
        found = load(str(file), environment, ["num.partitions=3", "num.partitions = 4"])
        config = found.broker_config()
        assert (config.num_partitions, config.broker_rack, config.fetch_max_bytes) == (4, "environment", 2000)
        assert found.origins == {
            "num.partitions": "--set",
            "broker.rack": "KAFKALITE_BROKER_RACK",
            "fetch.max.bytes": str(file),
        }

    def test_variables_of_tools_are_not_configuration(self) -> None:
        environment = {"KAFKALITE_DEBUG": "1", "KAFKALITE_CLIENT_CONFIG": "a", "KAFKALITE_LISTENERS": "PLAINTEXT://:1"}
        assert load(None, environment).texts == {"listeners": "PLAINTEXT://:1"}

    def test_error_of_a_wrong_value_names_its_origin(self, tmp_path: Path) -> None:
        file = tmp_path / "my.toml"
        file.write_text("num.partitions = 0")
        for found, location in (
            (load(str(file)), str(file)),
            (load(None, {"KAFKALITE_NUM_PARTITIONS": "0"}), "KAFKALITE_NUM_PARTITIONS"),
            (load(None, {}, ["num.partitions=0"]), "--set"),
        ):
            with pytest.raises(ConfigError) as caught:
                found.broker_config()
            assert str(caught.value).endswith(f"allowed is a whole number between 1 and 2147483647 (in {location})")

    def test_unreadable_configuration_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="nowhere: No such file"):
            load(str(tmp_path / "nowhere"))
        for setting in ("a", "=1"):
            with pytest.raises(ConfigError, match="write it as key=value"):
                load(None, {}, [setting])
