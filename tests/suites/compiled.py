"""The tests of transactions of clients that are compiled: librdkafka (C and C++) and franz-go (Go).

They need three brokers. With secured ones librdkafka logs in itself; `tests.kit.secured.front` does so for franz-go's
tests, and for those of librdkafka that refuse logins. A checkout is built in place, once: librdkafka with gcc,
franz-go with Go. The test 0098 of librdkafka uses Java's producer and RapidJSON: RAPIDJSON names the directory of its
headers, without it librdkafka skips the test.
"""

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.kit import jvm
from tests.kit.secured.logins import librdkafka_login

LIBRDKAFKA_TESTS = ("0098", "0103", "0105", "0129")
WITHOUT_LOGIN = ("0098",)  # it skips itself with a login, as its Java producer has none
CONF = """metadata.broker.list={address}
test.timeout.multiplier=4
"""
RECORDS = "20000"  # of a run of franz-go's EOS ETL, which has six groups; its own default is 500,000
BROKER_VERSION = "4.0.0"


def librdkafka(checkout: Path, directory: Path, address: str, tests: Sequence[str]) -> int:
    """Run tests of librdkafka one after another; returns the number of those that have failed.

    Arguments:
        checkout: of librdkafka.
        directory: an empty one.
        address: of a broker.
        tests: numbers, none = those of transactions.
    """
    build_librdkafka(checkout)
    path = str(kafka_release(directory))
    return sum(
        run_librdkafka(checkout, write_conf(directory, address, each), {"TESTS": each, "KAFKA_PATH": path})
        for each in tests or LIBRDKAFKA_TESTS
    )


def build_librdkafka(checkout: Path) -> None:
    """Build the libraries and the tests, once."""
    headers = os.environ.get("RAPIDJSON")
    flags = f"-I{Path(headers).resolve()} -DWITH_RAPIDJSON=1" if headers else ""
    if not (checkout / "Makefile.config").exists():
        subprocess.run(["./configure", f"--CPPFLAGS={flags}"], cwd=checkout, check=True)
    for command in (["make", "libs"], ["make", "-C", "tests", "test-runner"]):
        subprocess.run(command, cwd=checkout, check=True)


def run_librdkafka(checkout: Path, conf: Path, variables: Mapping[str, str]) -> bool:
    """Run a test of librdkafka; returns whether it has failed.

    Arguments:
        checkout: of librdkafka, built.
        conf: the file of settings.
        variables: of the process: TESTS is the number of the test.
    """
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{checkout / 'src'}:{checkout / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(conf),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        **variables,
    }
    return subprocess.run(["./test-runner", "-p1"], cwd=checkout / "tests", env=environment).returncode != 0


def write_conf(directory: Path, address: str, test: str) -> Path:
    """Write the settings of a test: with a login if the broker is secured, and the test does not refuse one."""
    login = {} if test in WITHOUT_LOGIN else librdkafka_login(address)
    path = directory / f"{test}.conf"
    path.write_text(CONF.format(address=address) + "".join(f"{key}={value}\n" for key, value in login.items()))
    return path


def kafka_release(directory: Path) -> Path:
    """A directory with those files of a release of Kafka that librdkafka's tests use."""
    *options, classes, _ = jvm.java_command(jvm.CURRENT, "", log="ERROR")
    release = directory / "kafka"
    (release / "bin").mkdir(parents=True)
    (release / "libs").symlink_to(Path(jvm.kafka_classpath()).parent)
    script = release / "bin" / "kafka-run-class.sh"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(options)} "{classes}:$CLASSPATH" "$@"\n')
    script.chmod(0o755)
    return release


def franz_go(checkout: Path, directory: Path, address: str, tests: Sequence[str]) -> int:
    """Run tests of franz-go's client; returns the exit code of `go test`.

    Arguments:
        checkout: of franz-go.
        directory: unused.
        address: of a broker.
        tests: patterns of names, none = the EOS ETL. KGO_TEST_RECORDS sets the number of its records.
    """
    environment = {"KGO_TEST_RECORDS": RECORDS, "KGO_LOG_LEVEL": "none", **os.environ, "KGO_SEEDS": address}
    command = ["go", "test", "-count=1", "-v", "-run", "|".join(tests or ["^TestTxnEtl$"]), "./pkg/kgo"]
    return subprocess.run(command, cwd=checkout, env=environment, check=False).returncode


COMPILED: dict[str, Callable[[Path, Path, str, Sequence[str]], int]] = {
    "librdkafka": librdkafka,
    "franz-go": franz_go,
}
