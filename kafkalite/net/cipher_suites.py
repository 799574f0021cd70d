"""Restricts a TLS context to cipher suites, which Kafka's settings name by their standard names (IANA).

1. Python cannot choose among the suites of TLS 1.3: all of them are named, or none.
2. A TLS version without a suite is switched off.
3. A suite that this OpenSSL does not have is an error; OpenSSL itself ignores it.
"""

import re
import ssl
from collections.abc import Sequence

OF_TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
EXCHANGES = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "DHE_RSA": "DHE-RSA-", "RSA": ""}
_SUITE = re.compile(rf"TLS_({'|'.join(EXCHANGES)})_WITH_(?:AES_(128|256)_(GCM_|CBC_)(SHA\d*)|CHACHA20_POLY1305_SHA256)")


def use_cipher_suites(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Let a context use only these suites.

    Arguments:
        context: with its TLS versions.
        suites: standard names.

    Raises:
        ValueError: OpenSSL does not have a suite, or no TLS version has one.
    """
    newest = [each for each in suites if each in OF_TLS_1_3 and context.maximum_version != ssl.TLSVersion.TLSv1_2]
    older = [each for each in suites if each not in OF_TLS_1_3]
    if context.minimum_version == ssl.TLSVersion.TLSv1_3:
        older = []
    if newest and len(newest) < len(OF_TLS_1_3):
        raise ValueError(f"Python cannot choose among the suites of TLS 1.3: name {', '.join(OF_TLS_1_3)}, or none")
    if not newest and not older:
        raise ValueError("no suite belongs to an enabled TLS version")
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if older:
        _choose(context, older)
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2. Raises ValueError: it is none that Kafka would use.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256; TLS_RSA_WITH_AES_256_CBC_SHA is AES256-SHA.
    """
    found = _SUITE.fullmatch(suite)
    if found is None:
        raise ValueError(f"{suite} is not a supported cipher suite; write TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    exchange, bits, mode, digest = found.groups()
    cipher = "CHACHA20-POLY1305" if bits is None else f"AES{bits}-{'GCM-' if mode == 'GCM_' else ''}{digest}"
    return EXCHANGES[exchange] + cipher


def _choose(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    names = {openssl_name(each): each for each in suites}
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise ValueError(f"{suites[0]} is not in this OpenSSL") from error
    there = {each["name"] for each in context.get_ciphers()}
    for name, suite in names.items():
        if name not in there:
            raise ValueError(f"{suite} is not in this OpenSSL")
