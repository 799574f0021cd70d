"""The security settings of a client: what is rejected, by name and without secrets."""

import ssl

import pytest
from kafkalite_sdk import Consumer, Producer
from kafkalite_sdk.client.security import Security, parse_security

SECRET = "geheim"
CREDENTIALS = {"sasl_username": "alice", "sasl_password": SECRET}
PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **CREDENTIALS}


async def token():
    return SECRET


OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_token": token}


class OnlyName:
    name = "X"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"security_protocol": "TLS"}, ValueError, "security_protocol is 'TLS', expected one of PLAINTEXT, SSL"),
        (
            {"ssl_cafile": "x"},
            ValueError,
            "ssl_cafile has no effect .* PLAINTEXT; set security_protocol to SSL or SASL_SSL",
        ),
        (
            {**CREDENTIALS},
            ValueError,
            "sasl_username has no effect .*set security_protocol to SASL_PLAINTEXT or SASL_SSL",
        ),
        ({**PLAIN, "security_protocol": "SSL"}, ValueError, "sasl_mechanism has no effect with security_protocol SSL"),
        (
            {"security_protocol": "SASL_SSL"},
            ValueError,
            "sasl_mechanism is not set, expected one of PLAIN, SCRAM-SHA-256",
        ),
        ({**PLAIN, "sasl_mechanism": "GSSAPI"}, ValueError, "sasl_mechanism is 'GSSAPI', expected one of PLAIN"),
        ({**PLAIN, "sasl_mechanism": OnlyName()}, ValueError, "sasl_username has no effect with this sasl_mechanism"),
        ({**PLAIN, "sasl_password": None}, ValueError, "sasl_mechanism PLAIN needs sasl_password"),
        ({**PLAIN, "sasl_password": b"geheim"}, TypeError, "sasl_password is a bytes, expected a str"),
        ({**PLAIN, "sasl_password": ""}, ValueError, "sasl_password is empty"),
        ({**PLAIN, "sasl_password": "geheim\0"}, ValueError, "sasl_password contains a NUL character"),
        ({**PLAIN, "sasl_token": token}, ValueError, "sasl_token has no effect with this sasl_mechanism"),
        ({**OAUTH, "sasl_token": None}, ValueError, "sasl_mechanism OAUTHBEARER needs sasl_token"),
        ({**OAUTH, "sasl_token": SECRET}, TypeError, "sasl_token is a str, expected an async function"),
        ({**OAUTH, **CREDENTIALS}, ValueError, "sasl_username has no effect with this sasl_mechanism"),
        (
            {"security_protocol": "SSL", "ssl_context": "x"},
            TypeError,
            "ssl_context is a str, expected an ssl.SSLContext",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)},
            ValueError,
            "ssl_context is a context for servers",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_cafile": "x"},
            ValueError,
            "ssl_cafile has no effect with ssl_context",
        ),
        ({"security_protocol": "SSL", "ssl_cafile": 1}, TypeError, "ssl_cafile is a int, expected a path"),
        ({"security_protocol": "SSL", "ssl_keyfile": "x"}, ValueError, "ssl_keyfile needs ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_check_hostname": 1}, TypeError, "ssl_check_hostname is 1, expected a bool"),
        ({"security_protocol": "SSL", "ssl_cafile": "/missing"}, ValueError, "ssl_cafile /missing: No such file"),
    ],
)
@pytest.mark.parametrize("client", [Producer, Consumer])
def test_wrong_settings_are_named(client, options, error, text):
    with pytest.raises(error, match=text) as raised:
        client("localhost:9092", **options)
    assert SECRET not in str(raised.value)


def test_user_defined_mechanism_needs_two_members():
    with pytest.raises(TypeError, match=r"sasl_mechanism is a OnlyName, expected an object with name and begin\(\)"):
        parse_security({"security_protocol": "SASL_SSL", "sasl_mechanism": OnlyName()})


def test_text_of_the_settings_has_no_secret():
    assert repr(Security()) == "Security(PLAINTEXT)"
    assert repr(parse_security(PLAIN)) == "Security(SASL_PLAINTEXT, PLAIN)"
    assert repr(parse_security(OAUTH)) == "Security(SASL_SSL, OAUTHBEARER)"


def test_none_is_not_set():
    settings = dict.fromkeys(("ssl_context", "ssl_cafile", "sasl_mechanism", "sasl_token"))
    assert parse_security({"security_protocol": "PLAINTEXT", **settings}) == Security()
