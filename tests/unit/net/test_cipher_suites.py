"""Cipher suites by their standard names: what OpenSSL then uses, and what is refused."""

import ssl

import pytest

from kafkalite.net.cipher_suites import OF_TLS_1_3, openssl_name, use_cipher_suites

V12, V13, NEWEST = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED
ECDHE_RSA, ECDHE_ECDSA = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def context(oldest: ssl.TLSVersion = V12, newest: ssl.TLSVersion = NEWEST) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version, made.maximum_version = oldest, newest
    return made


def older(made: ssl.SSLContext) -> list[str]:
    """The suites before TLS 1.3, in their order."""
    return [each["name"] for each in made.get_ciphers() if each["name"] not in OF_TLS_1_3]


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        (ECDHE_RSA, "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
    ],
)
def test_names_of_openssl(suite: str, name: str) -> None:
    assert openssl_name(suite) == name
    made = context()
    made.set_ciphers(f"ALL:@SECLEVEL=0:{name}")
    assert name in older(made), "OpenSSL has it"


def test_only_named_suites_are_used() -> None:
    made = context()
    use_cipher_suites(made, [ECDHE_ECDSA, ECDHE_RSA])
    assert older(made) == ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
    assert made.maximum_version == V12, "TLS 1.3 has no suite"


def test_all_suites_of_tls_1_3_keep_it() -> None:
    made = context()
    use_cipher_suites(made, [*OF_TLS_1_3, ECDHE_RSA])
    assert (made.minimum_version, made.maximum_version, older(made)) == (V12, NEWEST, ["ECDHE-RSA-AES256-GCM-SHA384"])
    made = context()
    use_cipher_suites(made, OF_TLS_1_3)
    assert made.minimum_version == V13


def test_suites_of_versions_that_are_not_enabled_are_ignored() -> None:
    made = context(newest=V12)
    use_cipher_suites(made, [OF_TLS_1_3[0], ECDHE_RSA])
    assert older(made) == ["ECDHE-RSA-AES256-GCM-SHA384"]
    made = context(oldest=V13)
    use_cipher_suites(made, [*OF_TLS_1_3, ECDHE_RSA])
    assert made.minimum_version == V13


@pytest.mark.parametrize(
    ("suites", "versions", "words"),
    [
        ([OF_TLS_1_3[0]], (V12, NEWEST), "Python cannot choose among the suites of TLS 1.3: name TLS_AES_128"),
        ([OF_TLS_1_3[0]], (V12, V12), "no suite belongs to an enabled TLS version"),
        ([ECDHE_RSA], (V13, NEWEST), "no suite belongs to an enabled TLS version"),
        (["ECDHE-RSA-AES256-GCM-SHA384"], (V12, V12), "is not a supported cipher suite; write TLS_ECDHE_RSA_WITH"),
        (["ALL"], (V12, V12), "ALL is not a supported cipher suite"),
        (["TLS_RSA_WITH_AES_256_GCM_SHA256"], (V12, V12), "TLS_RSA_WITH_AES_256_GCM_SHA256 is not in this OpenSSL"),
        ([ECDHE_RSA, "TLS_RSA_WITH_AES_256_GCM_SHA256"], (V12, V12), "^TLS_RSA_WITH_AES_256_GCM_SHA256 is not in"),
    ],
)
def test_suites_that_cannot_be_used_are_named(
    suites: list[str], versions: tuple[ssl.TLSVersion, ssl.TLSVersion], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        use_cipher_suites(context(*versions), suites)
