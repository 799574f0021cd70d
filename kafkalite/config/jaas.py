"""Parses the text of `sasl.jaas.config`: one login module with its options. No class is ever loaded.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Only the login modules of the mechanisms in `MODULES` are accepted, by their exact names: a broker of Java that loads
the class which a text names can be made to run code of others (CVE-2023-25194, CVE-2024-31141, CVE-2025-27817).

Source: JaasConfig.java, JaasContext.java of Apache Kafka 4.3.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkalite.config.keys import ConfigError

PACKAGE = "org.apache.kafka.common.security"
SCRAM_MODULE = f"{PACKAGE}.scram.ScramLoginModule"
MODULES = {
    "PLAIN": f"{PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
FLAGS = ("required", "requisite", "sufficient", "optional")
TEXT_CHARACTERS_MAX = 1 << 20
TOKEN = re.compile(r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([\w$.\-]+)|([=;]))""", re.DOTALL)
COMMENT = re.compile(r"\s*(?://[^\n]*|/\*.*?\*/)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


class LoginModule(NamedTuple):
    """A login module with its options, which may be secrets: `repr` shows their names only."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, options={sorted(self.options)})"


def parse_jaas(key: str, text: str, mechanism: str) -> LoginModule:
    """Return the login module of a text.

    Arguments:
        key: names the text in errors, which never contain a part of it but the name of a class.
        text: as in a file, without the quotes of a properties file.
        mechanism: whose login module it must be.

    Raises:
        ConfigError: the text is malformed, has several modules, or one of another class.
    """
    tokens = list(_tokens(key, text))
    if [kind for kind, _ in tokens[:2]] != ["word", "word"] or tokens[-1] != ("sign", ";"):
        raise ConfigError(key, f"{key}: expected `LOGIN_MODULE required name=value ...;`")
    name, flag = tokens[0][1], tokens[1][1]
    if name != MODULES[mechanism]:
        raise ConfigError(
            key, f"{key}: the login module is {name[:200]!r}, expected {MODULES[mechanism]} for {mechanism}"
        )
    if flag.lower() not in FLAGS:
        raise ConfigError(key, f"{key}: the flag of {name} is not one of {', '.join(FLAGS)}")
    return LoginModule(name, dict(_options(key, tokens[2:-1])))


def _tokens(key: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield words, quoted texts and signs."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ConfigError(key, f"{key}: the text has {len(text)} characters, limit {TEXT_CHARACTERS_MAX}")
    at, end = 0, len(text.rstrip())
    while at < end:
        comment = COMMENT.match(text, at)
        found = comment or TOKEN.match(text, at)
        if found is None:
            raise ConfigError(key, f"{key}: character {at + 1} is not valid; quote values, and end with a semicolon")
        at = found.end()
        if comment is None:
            double, single, word, sign = found.groups()
            quoted = single if double is None else double
            if quoted is not None:
                yield "quoted", re.sub(r"\\(.)", lambda each: ESCAPES.get(each[1], each[1]), quoted, flags=re.DOTALL)
            else:
                yield ("word", word) if word is not None else ("sign", sign)


def _options(key: str, tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    names = set()
    for at in range(0, len(tokens), 3):
        name, equals, value = (*tokens[at : at + 3], ("", ""), ("", ""))[:3]
        if equals != ("sign", "=") or "sign" in (name[0], value[0]) or not value[0]:
            raise ConfigError(key, f"{key}: option {at // 3 + 1} is not name=value; there must be one login module")
        if name[1] in names:
            raise ConfigError(key, f"{key}: option {name[1]} occurs twice")
        names.add(name[1])
        yield name[1], value[1]
