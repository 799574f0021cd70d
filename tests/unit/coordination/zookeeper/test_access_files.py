"""The files that secure sessions with ZooKeeper: contexts, the identity, and what is refused with its setting."""

import ssl
from pathlib import Path

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.table_security import DIGEST_FILE
from kafkalite.coordination.errors import InvalidAclError, NoAuthError, NoNodeError, TlsError
from kafkalite.coordination.zookeeper.access import ANONYMOUS, Access, kafka_acl
from kafkalite.coordination.zookeeper.access_files import explain, load_access
from tests.kit.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def access(settings: dict[str, object]) -> Access:
    texts = {key: str(value) for key, value in settings.items()}
    return load_access(BrokerConfig(texts).zookeeper_security)


def tls(authority: Authority, **more: object) -> dict[str, object]:
    """Settings of TLS; `more` below `zookeeper.ssl.`, with underscores."""
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": authority.cert,
        **{f"zookeeper.ssl.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def digest_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "digest"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_settings_a_session_is_anonymous() -> None:
    assert access({}) == ANONYMOUS


def test_context_of_the_settings(authority: Authority) -> None:
    store = authority.issue("broker", password="secret").bundle()
    found = access(
        tls(
            authority,
            keystore_location=store,
            keystore_password="secret",
            cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            endpoint_identification_algorithm="",
        )
    )
    assert found.tls is not None
    context = found.tls.get()
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert not context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in {each["name"] for each in context.get_ciphers()}
    assert "ECDHE-RSA-AES256-GCM-SHA384" not in {each["name"] for each in context.get_ciphers()}
    both = access(tls(authority, enabled_protocols="TLSv1.3,TLSv1.2")).tls
    assert both is not None
    assert (both.get().minimum_version, both.get().maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert both.get().check_hostname


def test_settings_of_an_identity_are_known_for_errors(authority: Authority, tmp_path: Path) -> None:
    digest = {DIGEST_FILE: digest_file(tmp_path, "kafka:secret")}
    keystore = tls(authority, keystore_location=authority.issue("identity").bundle())
    assert access(tls(authority)).identity_settings == ()
    assert access(digest).identity_settings == (DIGEST_FILE,)
    assert access(keystore).identity_settings == ("zookeeper.ssl.keystore.location",)
    assert access({**digest, **keystore}).identity_settings == (DIGEST_FILE, "zookeeper.ssl.keystore.location")


def test_identity_and_access_control_lists(tmp_path: Path) -> None:
    found = access({DIGEST_FILE: digest_file(tmp_path, "kafka:se:cret \n"), "zookeeper.set.acl": "true"})
    assert (found.tls, found.digest, found.acl) == (None, b"kafka:se:cret ", kafka_acl)


def test_a_digest_without_tls_is_warned_of(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digest = {DIGEST_FILE: digest_file(tmp_path, "kafka:secret")}
    access({**digest, **tls(authority)})
    access({})
    assert caplog.text == ""
    access(digest)
    (warning,) = caplog.messages
    assert warning == f"{DIGEST_FILE} is sent to ZooKeeper in clear text, as zookeeper.ssl.client.enable is false"


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("kafka:secret\n", 0o640, "its mode is 0640, other users have access: `chmod 600` it"),
        ("kafka:secret\n", 0o604, "its mode is 0604"),
        ("", 0o600, "it must have one line, USER:PASSWORD, of at most 4096 bytes"),
        ("kafka", 0o600, "one line, USER:PASSWORD"),
        (":secret", 0o600, "one line, USER:PASSWORD"),
        ("kafka:\n", 0o600, "one line, USER:PASSWORD"),
        ("kafka:secret\nother:secret\n", 0o600, "one line, USER:PASSWORD"),
        (f"kafka:{'s' * 4096}", 0o600, "of at most 4096 bytes"),
    ],
)
def test_unsuitable_files_of_an_identity_are_named(tmp_path: Path, text: str, mode: int, words: str) -> None:
    path = digest_file(tmp_path, text, mode)
    with pytest.raises(ValueError, match=words) as caught:
        access({DIGEST_FILE: path})
    assert str(caught.value).startswith(f"{DIGEST_FILE} {path}: ")
    assert "secret" not in str(caught.value)


def test_missing_files_are_named(authority: Authority, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    for settings, key in (
        ({DIGEST_FILE: missing}, DIGEST_FILE),
        (tls(authority, truststore_location=missing), "zookeeper.ssl.truststore.location"),
        (tls(authority, keystore_location=missing), "zookeeper.ssl.keystore.location"),
    ):
        with pytest.raises(ValueError, match=f"^{key} {missing}: No such file or directory"):
            access(settings)


def test_unsuitable_stores_are_named_with_their_settings(authority: Authority) -> None:
    encrypted = authority.issue("encrypted", password="secret")
    for settings, words in (
        (tls(authority, keystore_location=encrypted.cert), r"keystore\.location .*no usable .*append the private key"),
        (
            tls(authority, keystore_location=encrypted.bundle()),
            r"keystore\.location .*the key is encrypted; set zookeeper\.ssl\.keystore\.password",
        ),
        (
            tls(authority, keystore_location=encrypted.bundle(), keystore_password="geheim"),
            r"cannot be decrypted with zookeeper\.ssl\.keystore\.password",
        ),
        (tls(authority, cipher_suites="RC4"), r"^zookeeper\.ssl\.cipher\.suites: RC4 is not a supported"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            access(settings)
        assert "geheim" not in str(caught.value)


def test_errors_name_the_settings_to_check() -> None:
    other = "no permission: /brokers; another identity owns the nodes: check"
    digest, store = DIGEST_FILE, "zookeeper.ssl.keystore.location"
    assert explain(NoAuthError("/brokers"), (digest,)) == f"{other} {digest}"
    assert explain(NoAuthError("/brokers"), (digest, store), " in FILE") == f"{other} {digest} and {store} in FILE"
    assert explain(NoAuthError("/brokers")) == f"{other} {digest} or {store}"
    assert explain(InvalidAclError("/brokers"), (store,), " in FILE") == (
        "the access control list is not supported: /brokers; ZooKeeper knows no identity of this session: enable "
        f"authProvider.x509 there, or set {digest} in FILE"
    )
    assert explain(TlsError(), where=" in FILE").endswith(
        "; check zookeeper.ssl.truststore.location and zookeeper.ssl.keystore.location in FILE"
    )
    assert explain(NoNodeError("/a")) == "no such node: /a"
