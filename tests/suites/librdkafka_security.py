"""The tests of librdkafka about security: its admin client with ACLs, certificates, changed logins and renewed ones.

They run over SASL_SSL on the broker of `listeners`, whose user may do what no ACL denies. Parts of 0135 and 0142 are
left out: they need share groups or three brokers.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.suites.compiled import build_librdkafka, run_librdkafka
from tests.suites.listeners import CERTIFICATES, KEY_PASSWORD, PASSWORD, SASL_TLS_PORT, USER

SETTINGS = {"num.partitions": "4", "connections.max.reauth.ms": "10000"}
RUNS = (
    {"TESTS": "0081"},
    {"TESTS": "0097"},
    {"TESTS": "0135", "SUBTESTS": "do_test:"},
    {"TESTS": "0142", "SUBTESTS": "do_test_producer"},
    {"TESTS": "0142", "SUBTESTS": "do_test_txn_producer"},
)
"""The tests, with the variables of their processes."""

CONF = """metadata.broker.list=127.0.0.1:{port}
security.protocol=sasl_ssl
sasl.mechanism=PLAIN
sasl.username={user}
sasl.password={password}
ssl.ca.location={folder}/ca.crt
ssl.certificate.location={folder}/client.crt
ssl.key.location={folder}/client.key
ssl.key.password={key_password}
"""
FILES = {
    "SSL_pub_pem": "client.crt",
    "SSL_priv_pem": "client.key",
    "SSL_all_cas_pem": "ca.crt",
    "SSL_pub_der": "client.der",
    "SSL_priv_der": "key.der",
    "SSL_ca_der": "ca.der",
    "SSL_pkcs": "client.p12",
}
CONVERSIONS = (
    "x509 -in client.crt -outform DER -out client.der",
    "x509 -in ca.crt -outform DER -out ca.der",
    "pkcs8 -topk8 -in client.key -outform DER -out key.der",
    "pkcs12 -export -in client.crt -inkey client.key -certfile ca.crt -out client.p12",
)
"""The certificates of the tests in the formats that 0097 loads."""


def run(checkout: Path, directory: Path, variables: Mapping[str, str], tests: Sequence[str]) -> int:
    """Run tests one after another; returns the number of runs that have failed.

    Arguments:
        checkout: of librdkafka.
        directory: an empty one.
        variables: of the broker.
        tests: numbers, none = all.
    """
    build_librdkafka(checkout)
    folder = Path(variables[CERTIFICATES])
    for each in CONVERSIONS:
        passwords = f" -passout pass:{KEY_PASSWORD}" if each.startswith("pkcs") else ""
        passwords += f" -passin pass:{KEY_PASSWORD}" if passwords else ""
        subprocess.run(["openssl", *(each + passwords).split()], cwd=folder, check=True)
    conf = directory / "test.conf"
    login = {"user": USER, "password": PASSWORD, "key_password": KEY_PASSWORD}
    conf.write_text(CONF.format(port=variables[SASL_TLS_PORT], folder=folder, **login))
    files = {name: str(folder / file) for name, file in FILES.items()} | {"SSL_password": KEY_PASSWORD}
    runs = [each for each in RUNS if not tests or each["TESTS"] in tests]
    return sum(run_librdkafka(checkout, conf, files | each) for each in runs)
