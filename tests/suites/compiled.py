"""The tests of transactions of clients that are compiled: librdkafka (C and C++) and franz-go (Go).

They need three brokers, or a secured one: librdkafka logs in itself, `tests.kit.secured.front` does so for franz-go's
tests and for Java's producer. A checkout is built in place, once: librdkafka with gcc, franz-go with Go. The test
0098 of librdkafka uses Java's producer and RapidJSON: RAPIDJSON names the directory of its headers, without it
librdkafka skips the test.
"""

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kit import jvm
from tests.kit.secured.logins import is_wanted, librdkafka_login

LIBRDKAFKA_TESTS = ("0098", "0103", "0105", "0129")
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
    headers = os.environ.get("RAPIDJSON")
    flags = f"-I{Path(headers).resolve()} -DWITH_RAPIDJSON=1" if headers else ""
    if not (checkout / "Makefile.config").exists():
        subprocess.run(["./configure", f"--CPPFLAGS={flags}"], cwd=checkout, check=True)
    for command in (["make", "libs"], ["make", "-C", "tests", "test-runner"]):
        subprocess.run(command, cwd=checkout, check=True)
    login = "".join(f"{key}={value}\n" for key, value in librdkafka_login(address).items())
    (directory / "test.conf").write_text(CONF.format(address=address) + login)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{checkout / 'src'}:{checkout / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(directory / "test.conf"),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "KAFKA_PATH": str(kafka_release(directory)),
    }
    runs = [{**environment, "TESTS": each} for each in tests or LIBRDKAFKA_TESTS]
    return sum(
        subprocess.run(["./test-runner", "-p1"], cwd=checkout / "tests", env=each).returncode != 0 for each in runs
    )


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
    replicas = "1" if is_wanted() else "3"
    defaults = {"KGO_TEST_RECORDS": RECORDS, "KGO_TEST_RF": replicas, "KGO_LOG_LEVEL": "none"}
    environment = {**defaults, **os.environ, "KGO_SEEDS": address}
    command = ["go", "test", "-count=1", "-v", "-run", "|".join(tests or ["^TestTxnEtl$"]), "./pkg/kgo"]
    return subprocess.run(command, cwd=checkout, env=environment, check=False).returncode


COMPILED: dict[str, Callable[[Path, Path, str, Sequence[str]], int]] = {
    "librdkafka": librdkafka,
    "franz-go": franz_go,
}
