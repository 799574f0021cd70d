"""Settings of clients, from files of several clients and from the command line."""

import asyncio
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kafkalite.cli.client_config import read_settings, split_settings, with_cli_names
from kafkalite.cli.client_options import Cluster
from kafkalite.cli.failure import Failure
from kafkalite.cli.main import main
from kafkalite.cli.produce import producer_settings


def test_names_of_several_clients_are_one_setting(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        "# of Java's clients\n"
        "bootstrap.servers = one:9092,two:9092\n"
        "security.protocol=SASL_SSL\n"
        "! of librdkafka\n"
        "sasl.mechanisms=SCRAM-SHA-512\n"
        "ssl.ca.location=/etc/issuer.pem\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="a \\"secret\\"";\n'
        "ssl.endpoint.identification.algorithm=\n"
    )
    assert read_settings(str(tmp_path / "client.properties"), ["request-timeout-ms=5000", "client_id=cron"]) == {
        "bootstrap_servers": "one:9092,two:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "ssl_cafile": "/etc/issuer.pem",
        "sasl_username": "alice",
        "sasl_password": 'a "secret"',
        "ssl_check_hostname": False,
        "request_timeout_ms": 5000,
        "client_id": "cron",
    }


def test_the_command_line_replaces_a_setting_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("sasl.username=file\nsasl.password=kept\n")
    assert read_settings(str(tmp_path / "f"), ["sasl.username=line"]) == {
        "sasl_username": "line",
        "sasl_password": "kept",
    }


def test_a_token_is_returned_for_each_authentication() -> None:
    token = read_settings(None, ["sasl.token=abc=="])["sasl_token"]
    assert asyncio.run(token()) == "abc=="


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "security.protokoll=x",
            "-X: security.protokoll is not a setting of a client; did you mean security.protocol?",
        ),
        ("nonsense=1", "-X: nonsense is not a setting of a client; known are "),
        ("hunter2 secret", "-X: 'hunter2' is not a setting; write KEY=VALUE"),
        ("ssl.check.hostname=maybe", "-X: ssl.check.hostname is 'maybe', expected true or false"),
        ("request.timeout.ms=0", "-X: request.timeout.ms is '0', expected a number of milliseconds above 0"),
        ("ssl.truststore.location=a.jks", "-X: ssl.truststore.location is a Java key store; export PEM files"),
        ('sasl.jaas.config=Module required password="secret";', "-X: sasl.jaas.config has no username="),
    ],
)
def test_a_setting_that_is_not_valid_is_one_line_without_its_secret(text: str, said: str) -> None:
    with pytest.raises(Failure) as failed:
        read_settings(None, [text])
    assert failed.value.message.startswith(said)
    assert "secret" not in failed.value.message


def test_a_line_of_a_file_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n\nsasl.passwort=x\n")
    with pytest.raises(Failure, match=rf"^{tmp_path / 'f'}, line 3: sasl.passwort is not a setting"):
        read_settings(str(tmp_path / "f"), [])
    (tmp_path / "f").write_bytes(b"\xff")
    with pytest.raises(Failure, match="it is not UTF-8 text"):
        read_settings(str(tmp_path / "f"), [])


@pytest.mark.parametrize(
    "args",
    [("topic", "list"), ("group", "list"), ("produce", "t"), ("consume", "t"), ("config", "describe", "brokers")],
)
def test_settings_that_do_not_fit_together_are_one_line(args: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*args, "-b", "127.0.0.1:1", "-X", "security.protocol=SASL_SSL"])
    assert done.exit_code == 2
    assert done.stderr.startswith("kafkalite: client settings: sasl.mechanism is not set, expected one of PLAIN")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("the sasl_* settings", "the sasl.* settings"),
        ("set ssl_check_hostname=False if", "set ssl.check.hostname=false if"),
        ('set security_protocol to "SSL"', 'set security.protocol to "SSL"'),
        ("request_timeout_ms = 5", "request.timeout.ms = 5"),
    ],
)
def test_errors_name_settings_as_the_command_line_does(text: str, named: str) -> None:
    assert with_cli_names(text) == f"{named} (-X KEY=VALUE or --client-config sets them)"


@pytest.mark.parametrize("text", ["topic orders does not exist", "my_sasl_mechanism", "sasl_mechanism.log"])
def test_other_words_of_an_error_stay(text: str) -> None:
    assert with_cli_names(text) == text


def test_addresses_of_the_file_are_used_unless_others_are_given(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("bootstrap.servers=of the file\n")
    done = CliRunner().invoke(main, ["topic", "list"], env={"KAFKALITE_CLIENT_CONFIG": str(tmp_path / "f")})
    assert "'of the file' is not an address" in done.stderr
    done = CliRunner().invoke(main, ["topic", "list", "--client-config", str(tmp_path / "f"), "-b", "given"])
    assert "'given' is not an address" in done.stderr


def test_producer_settings_have_dots_and_aliases_of_librdkafka() -> None:
    given = ["acks=1", "linger.ms=5", "batch.size=1000", "message.timeout.ms=9000", "max.request.size=99"]
    settings, producer = split_settings(read_settings(None, [*given, "client.id=x"]))
    assert settings == {"client_id": "x"}
    assert producer == {
        "acks": "1",
        "linger_ms": 5,
        "batch_size": 1000,
        "delivery_timeout_ms": 9000,
        "max_request_size": 99,
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("linger.msx=1", "-X: linger.msx is not a setting of a client; did you mean linger.ms?"),
        ("delivery.timeout=1", "-X: delivery.timeout is not a setting of a client; did you mean delivery.timeout.ms?"),
        ("acks=2", "-X: acks is '2', expected one of all, -1, 0, 1"),
        ("batch.size=0", "-X: batch.size is '0', expected 1 to 2147483647"),
    ],
)
def test_a_wrong_producer_setting(given: str, text: str) -> None:
    with pytest.raises(Failure, match=f"^{re.escape(text)}$"):
        read_settings(None, [given])


def test_a_producer_setting_of_another_command_is_an_error_except_in_a_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["topic", "list", "-X", "linger.ms=5"])
    assert (done.exit_code, done.stderr) == (2, "kafkalite: -X: linger.ms is a setting of `kafkalite produce` only\n")
    (tmp_path / "shared").write_text("acks=all\nlinger.ms=5\n")
    assert split_settings(read_settings(str(tmp_path / "shared"), []))[0] == {}


def test_requests_fit_into_a_short_delivery_timeout() -> None:
    with click.Context(click.Command("produce")):
        settings = producer_settings(Cluster((), {}, {"delivery_timeout_ms": 3000, "linger_ms": 1000}), "none")
    assert (settings["request_timeout_ms"], settings["delivery_timeout_ms"]) == (2000, 3000)
