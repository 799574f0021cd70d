"""The tests of librdkafka about security: its admin client with ACLs, certificates, changed logins and renewed ones.

They run over SASL_SSL on the three brokers of `listeners`, whose user may do what no ACL denies. 0126, tokens of OpenID
Connect, needs a librdkafka with libcurl. Left out are share groups, and of 0142 unsigned tokens, which are refused.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.suites.compiled import build_librdkafka, run_librdkafka
from tests.suites.listeners import CERTIFICATES, KEY_PASSWORD, PASSWORD, SASL_TLS_PORT, USER
from tests.suites.token_endpoint import PATHS

SETTINGS = {"num.partitions": "4", "connections.max.reauth.ms": "10000"}
RUNS = (
    {"TESTS": "0081"},
    {"TESTS": "0097"},
    {"TESTS": "0126", "SUBTESTS": "do_test_produce_consumer_with_OIDC"},
    {"TESTS": "0135", "SUBTESTS": "do_test:"},
    {"TESTS": "0142", "SUBTESTS": "do_test_producer"},
    {"TESTS": "0142", "SUBTESTS": "do_test_txn_producer"},
    {"TESTS": "0142", "SUBTESTS": "do_test_consumer"},
    {"TESTS": "0142", "SUBTESTS": "do_test_reauth_failure"},
)
"""The tests, with the variables of their processes."""

CONF = """metadata.broker.list=127.0.0.1:{port}
security.protocol=sasl_ssl
{login}ssl.ca.location={folder}/ca.crt
ssl.certificate.location={folder}/client.crt
ssl.key.location={folder}/client.key
ssl.key.password={key_password}
"""
PASSWORD_LOGIN = f"""sasl.mechanism=PLAIN
sasl.username={USER}
sasl.password={PASSWORD}
"""
TOKEN_LOGIN = f"""sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.method=oidc
sasl.oauthbearer.client.id={USER}
sasl.oauthbearer.client.secret={PASSWORD}
"""
WITH_TOKENS = ("0126",)
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
    environment = {name: str(folder / file) for name, file in FILES.items()} | {"SSL_password": KEY_PASSWORD}
    environment |= {name: variables[name] for name in PATHS}
    runs = [each for each in RUNS if not tests or each["TESTS"] in tests]
    return sum(
        run_librdkafka(checkout, write_secured_conf(directory, variables, each["TESTS"]), environment | each)
        for each in runs
    )


def write_secured_conf(directory: Path, variables: Mapping[str, str], test: str) -> Path:
    """Write the settings of a test."""
    path = directory / f"{test}.conf"
    login = TOKEN_LOGIN if test in WITH_TOKENS else PASSWORD_LOGIN
    folder = variables[CERTIFICATES]
    path.write_text(CONF.format(port=variables[SASL_TLS_PORT], login=login, folder=folder, key_password=KEY_PASSWORD))
    return path
