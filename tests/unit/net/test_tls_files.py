"""TLS contexts of PEM files: what is rejected before the first connection, and files that change."""

import logging
import os
import ssl
import time

import pytest

from kafkalite.config.security import KeyStore
from kafkalite.net.certificates import validities
from kafkalite.net.key_stores import load_key
from kafkalite.net.tls import PemFiles, ReloadedContext, load_client_context
from tests.kit.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority):
    return authority.issue("client")


def test_context_of_a_client(authority, client):
    context = load_client_context(PemFiles(authority.cert, client.cert, client.key))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "kafkalite-tests"),),)]
    assert not load_client_context(PemFiles(authority.cert, check_hostname=False)).check_hostname


def test_key_in_the_file_of_the_certificate(authority, client):
    load_client_context(PemFiles(authority.cert, client.bundle()))


def test_default_issuers_are_those_of_the_system():
    assert load_client_context(PemFiles()).verify_mode == ssl.CERT_REQUIRED


def unsuitable(name, authority, client, folder):
    """The files of a case, and the text of its error."""
    other, expired = authority.issue("other"), authority.issue("expired", days=-1)
    encrypted = authority.issue("encrypted", password="secret")
    text, damaged = folder / "text.pem", folder / "damaged.pem"
    text.write_text("no certificate")
    damaged.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    missing, ca = folder / "missing.pem", authority.cert
    return {
        "missing issuers": (PemFiles(missing), f"^ssl_cafile {missing}: No such file"),
        "a directory": (PemFiles(folder), f"^ssl_cafile {folder}: Is a directory"),
        "issuers without a certificate": (PemFiles(text), "ssl_cafile .*there is no PEM certificate"),
        "damaged issuers": (PemFiles(damaged), "ssl_cafile .*a certificate in the file is malformed"),
        "expired issuers": (PemFiles(expired.cert), r"ssl_cafile .*expired at \d{4}-\d\d-\d\d .*replace it"),
        "missing certificate": (PemFiles(ca, missing), f"^ssl_certfile {missing}: No such file"),
        "missing key": (PemFiles(ca, client.cert, missing), f"^ssl_keyfile {missing}: No such file"),
        "no key": (PemFiles(ca, client.cert), "ssl_certfile .*no usable private key.*set ssl_keyfile"),
        "no key in the file of the key": (PemFiles(ca, client.cert, text), "ssl_keyfile .*no usable private key"),
        "key of another": (PemFiles(ca, client.cert, other.key), "ssl_keyfile .*the key does not belong to the cert"),
        "expired certificate": (PemFiles(ca, expired.cert, expired.key), "ssl_certfile .*expired at .*renew it"),
        "no password": (PemFiles(ca, encrypted.cert, encrypted.key), "ssl_keyfile .*is encrypted; set ssl_password"),
        "wrong password": (
            PemFiles(ca, encrypted.cert, encrypted.key, "geheim"),
            "ssl_keyfile .*cannot be decrypted with ssl_password",
        ),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        *("missing issuers", "a directory", "issuers without a certificate", "damaged issuers", "expired issuers"),
        *("missing certificate", "missing key", "no key", "no key in the file of the key", "key of another"),
        *("expired certificate", "no password", "wrong password"),
    ],
)
def test_unsuitable_files_are_named(name, authority, client, tmp_path):
    files, text = unsuitable(name, authority, client, tmp_path)
    with pytest.raises(ValueError, match=text) as raised:
        ReloadedContext(files)
    assert "geheim" not in str(raised.value) and "geheim" not in repr(files)


def test_changed_files_are_loaded_again_and_unusable_ones_are_reported_once(authority, client, tmp_path, caplog):
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    cert.write_bytes(client.cert.read_bytes())
    key.write_bytes(client.key.read_bytes())
    reloaded = ReloadedContext(PemFiles(authority.cert, cert, key))
    first = reloaded.get()
    assert reloaded.get() is first
    renewed = authority.issue("renewed")
    cert.write_bytes(renewed.cert.read_bytes())  # half of the new pair
    with caplog.at_level(logging.WARNING):
        assert reloaded.get() is first and reloaded.get() is first
    assert caplog.text.count("the key does not belong to the certificate") == 1
    key.write_bytes(renewed.key.read_bytes())
    second = reloaded.get()
    assert second is not first and reloaded.get() is second
    os.unlink(cert)
    assert reloaded.get() is second


def test_a_missing_file_is_reported_once_and_loaded_when_it_is_back(authority, client, tmp_path, caplog):
    cafile = tmp_path / "ca.pem"
    cafile.write_bytes(authority.cert.read_bytes())
    reloaded = ReloadedContext(PemFiles(cafile=cafile))
    before = reloaded.get()
    cafile.unlink()
    with caplog.at_level(logging.WARNING):
        assert [reloaded.get() for _ in range(5)] == [before] * 5
    assert caplog.text.count("No such file or directory") == len(caplog.records) == 1
    cafile.write_bytes(authority.cert.read_bytes())
    assert reloaded.get() is not before and len(caplog.records) == 1


def test_validity_of_a_chain(authority, client):
    found = validities(client.cert.read_bytes() + authority.cert.read_bytes())
    assert [round((each.ends_at - each.begins_at) / 86_400) for each in found] == [2, 2]


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_truncated_certificates_are_malformed(client, length):
    lines = client.cert.read_text().splitlines()
    body = "".join(lines[1:-1])[:length]
    with pytest.raises(ValueError, match=r"there is no PEM certificate|malformed"):
        validities(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode())


@pytest.mark.parametrize(("body", "count"), [("\n", 200_000), ("\n-----BEGIN CERTIFICATE-----", 8_000)])
def test_text_without_an_end_is_rejected_in_linear_time(body, count):
    """Before, 1,000 line feeds took a second and 10,000 minutes, on the event loop for a dynamic config."""
    text = "-----BEGIN CERTIFICATE-----" + body * count
    store = KeyStore(type="PEM", location=None, password=None, key_password=None, key=text, chain="")
    begin = time.process_time()
    with pytest.raises(ValueError, match="0 private keys"):
        load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), store, "")
    with pytest.raises(ValueError, match="no PEM certificate"):
        validities(text.encode())
    assert time.process_time() - begin < 2
