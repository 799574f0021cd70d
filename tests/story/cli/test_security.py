"""`kafkalite security`: what `init` creates works; `check` finds each weak setting of a file or a broker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cli.security.weak_files import weak_file_settings
from kafkalite.cli.security.weak_settings import weak_settings
from kafkalite.config.files import read_file
from kafkalite.testing.thread import BrokerThread
from tests.kit.certificates import Authority
from tests.kit.ports import two_free_ports
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S, Run

MAP, MECHANISMS = "listener.security.protocol.map", "sasl.enabled.mechanisms"
OAUTH = "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
STRONG = {
    "listeners": "SASL_SSL://0.0.0.0:9093,PLAINTEXT://localhost:9092",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings={"allow.everyone.if.no.acl.found": "true"}) as broker:
        yield broker


def run(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, env=ENVIRON, timeout=TIMEOUT_S)
    assert done.returncode == code, f"{args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def test_created_files_secure_a_broker(tmp_path: Path) -> None:
    """The super user and the client certificate work; nothing that was created is weak, printed or overwritten."""
    directory, port = tmp_path / "security", str(two_free_ports())
    done = run("security", "init", str(directory), "--port", port)
    settings = read_file(str(directory / "server.properties"))
    client = (directory / "client.properties").read_text()
    password = client.partition("sasl.password=")[2].strip()
    assert len(password) == 24 and password not in done.stdout and 'user_admin="..."' in done.stdout
    private = {path.name for path in directory.iterdir() if path.stat().st_mode & 0o077 == 0}
    assert {path.name for path in directory.iterdir()} - private == {"ca.pem"}
    assert os.stat(directory).st_mode & 0o077 == 0
    assert "nothing is overwritten" in run("security", "init", str(directory), code=2).stderr
    assert [*weak_file_settings(str(directory / "server.properties"), 30)] == []
    with BrokerThread(settings=settings):
        options = ("--client-config", str(directory / "client.properties"))
        run("topic", "create", "orders", *options)
        assert run("security", "check", *options).stdout == "no weak setting\n"
        own = str(directory / "client.pem")
        tls = ("-X", "security.protocol=SSL", "-X", f"ssl.cafile={directory / 'ca.pem'}", "-X", f"ssl.certfile={own}")
        denied = run("acl", "list", "-b", f"localhost:{int(port) + 1}", *tls, code=2)
        assert "CLUSTER_AUTHORIZATION_FAILED" in denied.stderr
        run("acl", "add", "-u", "User:CN=admin", "-o", "describe", "--cluster", *options)
        assert "CN=admin" in run("acl", "list", "-b", f"localhost:{int(port) + 1}", *tls).stdout


def test_names_of_hosts_and_users(tmp_path: Path) -> None:
    assert "File name too long" in run("security", "init", str(tmp_path / ("x" * 300)), code=2).stderr
    assert "use letters" in run("security", "init", str(tmp_path), "--user", 'a"b', code=2).stderr
    for host in ("a b", "", "broker1.example:9093", "-broker"):
        said = run("security", "init", str(tmp_path), f"--host={host}", code=2).stderr
        assert f"--host {host!r}: use a host name or an IP address" in said
    assert "listeners=SASL_SSL://[::1]:9093" in run("security", "init", str(tmp_path / "6"), "--host", "::1").stdout
    hosts = ("--host", "broker1.example", "--host", "10.0.0.7")
    assert "listeners=SASL_SSL://0.0.0.0:9093" in run("security", "init", str(tmp_path), *hosts, "-u", "alice").stdout
    names = subprocess.run(
        ["openssl", "x509", "-in", tmp_path / "broker.pem", "-noout", "-ext", "subjectAltName"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "DNS:broker1.example, IP Address:10.0.0.7" in names and "localhost" not in names
    verified = ["openssl", "verify", "-CAfile", tmp_path / "ca.pem", tmp_path / "broker.pem", tmp_path / "client.pem"]
    assert subprocess.run(verified, capture_output=True, text=True, check=True).stdout.count("OK") == 2


def test_settings_of_running_brokers_are_checked(kafkalite: Run) -> None:
    done = kafkalite("security", "check", "--json", code=1)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(row["source"], row["key"]) for row in rows} == {
        ("broker:1", "authorizer.class.name"),
        ("broker:1", "allow.everyone.if.no.acl.found"),
    }
    assert all(row["problem"] and row["remedy"] for row in rows)


@pytest.mark.parametrize(
    ("texts", "keys"),
    [
        ({}, []),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, ["listeners"]),
        ({"listeners": "PLAINTEXT://:9092"}, ["listeners"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092,B://[::1]:9093", MAP: "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}, []),
        ({"listeners": "SASL_PLAINTEXT://broker.example:9092"}, ["listeners"]),
        ({"listeners": "SASL_PLAINTEXT://:1", MECHANISMS: "PLAIN"}, ["listeners", MECHANISMS]),
        ({"listeners": "SSL://:9092"}, ["ssl.client.auth"]),
        ({"listeners": "SSL://:9092", "listener.name.ssl.ssl.client.auth": "required"}, []),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}, ["ssl.enabled.protocols"]),
        ({"listener.name.sasl_ssl.ssl.enabled.protocols": "TLSv1"}, ["listener.name.sasl_ssl.ssl.enabled.protocols"]),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_3DES_EDE_CBC_SHA"}, ["ssl.cipher.suites"]),
        ({"ssl.endpoint.identification.algorithm": ""}, ["ssl.endpoint.identification.algorithm"]),
        ({"authorizer.class.name": ""}, ["authorizer.class.name"]),
        ({"allow.everyone.if.no.acl.found": "true"}, ["allow.everyone.if.no.acl.found"]),
        ({"super.users": "User:admin;User:ANONYMOUS"}, ["super.users"]),
        ({"zookeeper.connect": "zk1:2181"}, ["zookeeper.set.acl", "zookeeper.ssl.client.enable"]),
        ({"listeners": "nonsense"}, ["listeners"]),
        (
            {MECHANISMS: "OAUTHBEARER", "sasl.oauthbearer.expected.issuer": "https://a"},
            [f"{OAUTH}.jwks.endpoint.url", f"{OAUTH}.expected.audience"],
        ),
    ],
)  # fmt: skip
def test_each_weak_setting_is_found(texts: dict[str, str], keys: list[str]) -> None:
    assert [each.key for each in weak_settings({**STRONG, **texts})] == keys


def problems(path: Path, settings: dict[str, str], days: int = 30) -> list[str]:
    file = path / "server.properties"
    if not file.exists():
        file.touch(0o600)
    file.write_text("".join(f"{key}={text}\n" for key, text in {**STRONG, **settings}.items()))
    return [each.problem for each in weak_file_settings(str(file), days)]


def test_passwords_files_and_certificates_are_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("broker", days=10).bundle())}
    os.chmod(store["ssl.keystore.location"], 0o600)
    assert problems(tmp_path, store, days=5) == []
    (soon,) = problems(tmp_path, store)
    assert soon.startswith("the certificate expires in ")
    old = {**store, "ssl.keystore.location": str(authority.issue("old", days=-1).bundle())}
    os.chmod(old["ssl.keystore.location"], 0o646)
    readable, expired = problems(tmp_path, old)
    assert readable.startswith("other users can read and change") and "expired" in expired
    jaas = f'{MODULE} required user_a="a" user_b="alice-secret" user_c="short" user_d="7cf0a3cb55aa";'
    plain = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas}
    found = problems(tmp_path, {**store, **plain}, days=1)
    assert [each.split(" of ")[1][0] for each in found] == ["a", "b", "c"]
    assert not any("secret" in each for each in found)
    os.chmod(tmp_path / "server.properties", 0o644)
    assert problems(tmp_path, {**store, **plain}, days=1)[0].startswith("other users can read ")
    (wrong, *_) = problems(tmp_path, {**STRONG, "ssl.keystore.type": "PEM", "ssl.keystore.location": "/no"})
    assert wrong.startswith("the broker does not start: ")
    (tls,) = problems(tmp_path, {**store, "ssl.enabled.protocols": "TLSv1"}, days=1)[1:]
    assert tls.startswith("the broker does not start: ")
    known = {"ssl.keystore.password": "changeit", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/no.p12"}
    assert "documentation of Kafka" in problems(tmp_path, known)[1]


def test_file_that_cannot_be_read_is_one_line() -> None:
    assert "/no/file: No such file" in run("security", "check", "--config", "/no/file", code=2).stderr
