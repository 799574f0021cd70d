"""The SASL mechanisms without I/O: the vectors of the RFCs, both sides against each other, and what each rejects."""

import asyncio
import base64

import pytest

from kafkalite.errors import AuthenticationError, KafkaErrorCode
from kafkalite.net.sasl.oauthbearer import INVALID_TOKEN, OAuthBearerClient, OAuthBearerServer
from kafkalite.net.sasl.plain import PlainClient, PlainServer
from kafkalite.net.sasl.scram import (
    HASHES,
    KEYS_MAX,
    ScramClient,
    ScramCredential,
    ScramServer,
    TokenLogin,
    derive_keys,
    make_credential,
)
from kafkalite.net.sasl.scram_messages import SCRAM_BYTES_MAX, parse_client_first, parse_server_first
from kafkalite.net.sasl.steps import MESSAGE_BYTES_MAX, Authenticated, Job
from kafkalite.net.sasl.tokens import OAuthToken, check_token, expiry_of
from kafkalite.server.authentication.exchange import Answer, SaslServer

NOW = 1_700_000_000.0
SALT = b"0123456789abcdef"


def begin(client):
    return asyncio.run(client.begin("broker"))


def advance(steps, value=None):
    """The next message of a generator; jobs run at once. StopIteration as `send`."""
    step = steps.send(value)
    while isinstance(step, Job):
        step = steps.send(step.run())
    return step


def answer_of(server, message):
    answer = server.authenticate(message)
    while isinstance(answer, Job):
        answer = server.job_done(answer.run())
    return answer


def authenticate(server, client, change=lambda number, message: message):
    """Authenticate a client to a `SaslServer`; returns the last answer. `change` alters messages of the client."""
    code, mechanisms = server.handshake(client.name)
    assert code == 0 and client.name in mechanisms
    steps = begin(client)
    message, number = advance(steps), 0
    while True:
        answer = answer_of(server, change(number, message))
        number += 1
        if answer.error_code:
            return answer
        try:
            message = advance(steps, answer.auth_bytes)
        except StopIteration:
            return answer


def server_of(*mechanisms):
    return SaslServer(mechanisms, lambda: NOW)


def scram_server(name="SCRAM-SHA-256", users=("alice",), password="secret"):
    return ScramServer(name, {user: make_credential(name, password) for user in users}.get)


# the vectors

RFC_7677 = (
    "SCRAM-SHA-256",
    "rOprNGfwEbeRWgbNEkqO",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def test_vector_of_rfc_7677_on_both_sides():
    name, client_nonce, server_nonce, salt, proof, signature = RFC_7677
    steps = begin(ScramClient(name, "user", "pencil", lambda: client_nonce))
    assert advance(steps) == f"n,,n=user,r={client_nonce}".encode()
    offer = f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()
    final = f"c=biws,r={client_nonce}{server_nonce},p={proof}".encode()
    assert advance(steps, offer) == final
    with pytest.raises(StopIteration):
        advance(steps, f"v={signature}".encode())
    credential = make_credential(name, "pencil", base64.b64decode(salt))
    steps = ScramServer(name, {"user": credential}.get, lambda: server_nonce).begin(
        f"n,,n=user,r={client_nonce}".encode()
    )
    assert advance(steps) == offer
    with pytest.raises(StopIteration) as end:
        advance(steps, final)
    assert end.value.value == Authenticated("user", f"v={signature}".encode())


def test_nonce_that_is_no_ascii_text_is_an_authentication_failure():
    """A nonce that cannot be compared raised TypeError, and the connection stayed open."""
    credential = make_credential("SCRAM-SHA-256", "pencil", SALT)
    steps = ScramServer("SCRAM-SHA-256", {"user": credential}.get, lambda: "server").begin(b"n,,n=user,r=client")
    advance(steps)
    with pytest.raises(AuthenticationError):
        advance(steps, "c=biws,r=clientservér,p=AAAA".encode())


def test_vector_of_rfc_4616():
    assert advance(begin(PlainClient("tim", "tanstaaftanstaaf"))) == b"\0tim\0tanstaaftanstaaf"
    server = server_of(PlainServer(lambda user, password: (user, password) == ("Kurt", "xipj3plmq")))
    server.handshake("PLAIN")
    assert answer_of(server, b"Kurt\0Kurt\0xipj3plmq") == Answer() and server.name == "Kurt"


def test_form_of_rfc_7628():
    async def token():
        return OAuthToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", extensions={"host": "server.example.com"})

    expected = b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=server.example.com\x01\x01"
    assert advance(begin(OAuthBearerClient(token))) == expected
    seen = []

    def validate(value, extensions):
        seen.append((value, extensions))
        return Authenticated("user@example.com")

    steps = OAuthBearerServer(validate).begin(expected.replace(b"n,,", b"n,a=user@example.com,"))
    with pytest.raises(StopIteration):
        advance(steps)
    assert seen == [("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", {"host": "server.example.com"})]


# both sides


@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "ünïcode", "\u00adsoft", "x" * 1000])
def test_scram_accepts_the_right_password(name, user):
    server = server_of(scram_server(name, [user], "pässwörd \ufb01"))
    answer = authenticate(server, ScramClient(name, user, "pässwörd \ufb01"))
    assert answer.error_code == 0 and server.name == user and not server.failed


@pytest.mark.parametrize("name", HASHES)
def test_wrong_password_and_unknown_user_are_the_same_to_a_client(name):
    answers = []
    for user, password in (("alice", "wrong"), ("nobody", "secret")):
        server = server_of(scram_server(name))
        answers.append(authenticate(server, ScramClient(name, user, password)))
        assert server.failed and server.name is None
    assert answers[0] == answers[1] and answers[0].error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED


def test_salt_of_an_unknown_user_is_the_same_each_time():
    server = scram_server()
    offers = [advance(server.begin(f"n,,n={user},r=abc".encode())) for user in ("nobody", "nobody", "other")]
    salts = [parse_server_first(each).salt for each in offers]
    assert salts[0] == salts[1] != salts[2]


# delegation tokens

TOKEN = TokenLogin("alice", "base64 of the hmac", NOW + 60)


def token_client(password=TOKEN.password, token_id="token", name="SCRAM-SHA-256"):
    return ScramClient(name, token_id, password, is_token=True)


def token_server(name="SCRAM-SHA-256"):
    users = {"token": make_credential(name, "password of a user")}
    return ScramServer(name, users.get, find_token={"token": TOKEN, "late": TOKEN._replace(expires_at=NOW)}.get)


@pytest.mark.parametrize("name", HASHES)
def test_login_with_a_token_is_that_of_its_owner_until_it_expires(name):
    server = server_of(token_server(name))
    answer = authenticate(server, token_client(name=name))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    assert (server.name, server.by_token, server.expires_at) == ("alice", True, NOW + 60)


def test_user_and_token_of_one_name_have_their_own_passwords():
    server = server_of(token_server())
    assert authenticate(server, ScramClient("SCRAM-SHA-256", "token", "password of a user")).error_code == 0
    assert (server.name, server.by_token) == ("token", False)
    for client in (token_client("password of a user"), ScramClient("SCRAM-SHA-256", "token", TOKEN.password)):
        refused = authenticate(server_of(token_server()), client)
        assert refused.error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED


def test_unknown_expired_and_disabled_tokens_are_refused():
    wrong = [authenticate(server_of(token_server()), token_client(token_id=each)) for each in ("unknown", "late")]
    wrong.append(authenticate(server_of(scram_server(users=("token",), password=TOKEN.password)), token_client()))
    assert [each.error_code for each in wrong] == [KafkaErrorCode.SASL_AUTHENTICATION_FAILED] * 3


def offer_of(server, message):
    steps = server.begin(message)
    step = next(steps)
    while isinstance(step, Job):
        step = steps.send(step.run())
    return parse_server_first(step)


def test_iterations_of_a_token_do_not_show_whether_it_exists():
    server = ScramServer("SCRAM-SHA-256", {}.get, find_token={"token": TOKEN}.get, iterations=lambda: 8192)
    tokens = [offer_of(server, f"n,,n={each},r=nonce,tokenauth=true".encode()) for each in ("token", "unknown")]
    assert [each.iterations for each in tokens] == [4096, 4096]
    assert offer_of(server, b"n,,n=unknown,r=nonce").iterations == 8192


def test_brokers_show_one_salt_for_a_token_whether_it_exists_or_not():
    """Before, each broker had its own salt for a token."""
    found = {"token": TOKEN}
    brokers = [
        ScramServer("SCRAM-SHA-256", {}.get, find_token=found.get, secret=lambda: b"of the cluster") for _ in range(2)
    ]
    for each in ("token", "unknown"):
        message = f"n,,n={each},r=nonce,tokenauth=true".encode()
        first, second = (offer_of(server, message).salt for server in brokers)
        assert first == second != offer_of(brokers[0], message.replace(b",tokenauth=true", b"")).salt


def test_token_that_is_removed_during_its_login_is_refused():
    tokens = {"token": TOKEN}
    server = server_of(ScramServer("SCRAM-SHA-256", {}.get, find_token=tokens.get))

    def remove(number, message):
        if number == 1:
            del tokens["token"]
        return message

    refused = authenticate(server, token_client(), remove)
    assert refused.error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED and not tokens


def test_token_is_named_by_the_extension_of_kafka():
    assert advance(begin(ScramClient("SCRAM-SHA-256", "id", "hmac", lambda: "nonce", is_token=True))) == (
        b"n,,n=id,r=nonce,tokenauth=true"
    )
    for extension, is_token in ((",tokenauth=TRUE", True), (",a=b,tokenauth=true", True), (",tokenauth=no", False)):
        assert parse_client_first(f"n,,n=id,r=nonce{extension}".encode()).is_token is is_token


def test_password_of_a_token_is_hashed_once_and_few_are_kept(monkeypatch):
    monkeypatch.setattr("kafkalite.net.sasl.scram.TOKENS_MAX", 2)
    found = {f"{at}": TOKEN._replace(password=f"password {at}") for at in range(3)}
    server = ScramServer("SCRAM-SHA-256", {}.get, find_token=found.get)

    def hashes(token_id):
        steps = server.begin(f"n,,n={token_id},r=nonce,tokenauth=true".encode())
        step, jobs = next(steps), 0
        while isinstance(step, Job):
            step, jobs = steps.send(step.run()), jobs + 1
        return jobs

    assert [hashes(each) for each in "00112201"] == [1, 0, 1, 0, 1, 0, 1, 1]


def test_client_hashes_a_password_once_and_keeps_few_keys(monkeypatch):
    hashed = []
    monkeypatch.setattr(
        "kafkalite.net.sasl.scram.derive_keys", lambda *args: hashed.append(args[2]) or derive_keys(*args)
    )
    client = ScramClient("SCRAM-SHA-256", "alice", "secret")
    salts = [bytes([number]) * 16 for number in range(2 * KEYS_MAX)]
    for salt in (salts[0], salts[0], *salts, salts[-1]):
        users = {"alice": make_credential("SCRAM-SHA-256", "secret", salt)}
        hashed.clear()
        assert authenticate(server_of(ScramServer("SCRAM-SHA-256", users.get)), client).error_code == 0
    assert hashed == []  # the keys of the last salt are known
    assert len(client._keys) == KEYS_MAX
    authenticate(server_of(ScramServer("SCRAM-SHA-256", lambda _: make_credential("SCRAM-SHA-256", "x"))), client)
    assert len(client._keys) == KEYS_MAX


def test_client_rejects_a_broker_without_the_password():
    steps = begin(ScramClient("SCRAM-SHA-256", "alice", "secret"))
    nonce = advance(steps).rpartition(b"r=")[2]
    advance(steps, b"r=" + nonce + b"x,s=" + base64.b64encode(SALT) + b",i=4096")
    with pytest.raises(AuthenticationError, match="the broker does not know the password"):
        advance(steps, b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("offer", "text"),
    [
        (b"r=%s,s=c2FsdA==,i=4096", "nonce in the answer of the broker is not that of the client"),
        (b"r=other,s=c2FsdA==,i=4096", "nonce in the answer of the broker is not that of the client"),
        (b"r=%sx,s=c2FsdA==,i=4095", "requires 4095 SCRAM iterations, allowed are 4096 to 16384"),
        (b"r=%sx,s=c2FsdA==,i=16385", "requires 16385 SCRAM iterations"),
        (b"r=%sx,s=c2FsdA==,i=9999999999", "requires 9999999999 SCRAM iterations"),
        (b"r=%sx,s=c2FsdA==,i=99999999999", "the number of iterations is not a number"),
        (b"r=%sx,s=c2FsdA==,i=-1", "the number of iterations is not a number"),
        (b"r=%sx,s=,i=4096", "a value is not base64, or empty"),
        (b"r=%sx,s=c2F,i=4096", "a value is not base64, or empty"),
        (b"m=ext,r=%sx,s=c2FsdA==,i=4096", "it has a mandatory extension"),
        (b"r=%sx,i=4096", "it has 2 attributes, expected 3"),
        (b"s=c2FsdA==,r=%sx,i=4096", "attribute r is missing"),
        (b"", "it has 1 attributes, expected 3"),
        (b"\xff", "it is not UTF-8"),
        (b"r=%sx,s=c2FsdA==,i=4096," + bytes([65]) * SCRAM_BYTES_MAX, "limit 16384"),
    ],
)
def test_client_rejects_an_offer(offer, text):
    steps = begin(ScramClient("SCRAM-SHA-256", "alice", "secret"))
    nonce = advance(steps).rpartition(b"r=")[2]
    with pytest.raises(AuthenticationError, match=text):
        advance(steps, offer.replace(b"%s", nonce))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b",r=", b",r=x"),  # CVE-2024-56128: the nonce of the final message
        (b"c=biws", b"c=eSws"),
        (b",p=", b",p=AAAA"),
        (b",p=", b",x="),
        (b"c=biws,", b""),
    ],
)
def test_server_rejects_a_changed_final_message(old, new):
    server = server_of(scram_server())
    client = ScramClient("SCRAM-SHA-256", "alice", "secret")
    answer = authenticate(server, client, lambda number, message: message.replace(old, new) if number else message)
    assert answer.error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED and server.failed


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"p=tls-unique,,n=alice,r=abc", "channel binding is not supported"),
        (b"n,b=alice,n=alice,r=abc", "not an authorization id"),
        (b"n,a=bob,n=alice,r=abc", "the authorization id differs"),
        (b"n,,n=alice=2,r=abc", "the user name is not valid"),
        (b"n,,n=,r=abc", "the user name is not valid"),
        (b"n,,m=x,n=alice,r=abc", "mandatory extension"),
        (b"n,,n=alice,r=", "the nonce is not valid"),
        (b"n,,n=alice,r=a c", "the nonce is not valid"),
        (b"n,,n=al\0ice,r=abc", "it contains NUL"),
        (b"n", "it has 1 attributes, expected 2"),
    ],
)
def test_server_rejects_a_first_message(message, text):
    with pytest.raises(AuthenticationError, match=text):
        advance(scram_server().begin(message))


def test_server_ignores_optional_extensions_and_accepts_the_own_authorization_id():
    first = parse_client_first(b"y,a=alice,n=alice,r=abc,tokenauth=true")
    assert first.header == "y,a=alice," and first.bare == "n=alice,r=abc,tokenauth=true"


def test_weak_credentials_are_neither_created_nor_used():
    with pytest.raises(ValueError, match="1000 iterations, expected 4096 to 16384"):
        make_credential("SCRAM-SHA-256", "secret", iterations=1000)
    weak = ScramCredential(SALT, 1, bytes(32), bytes(32))
    with pytest.raises(AuthenticationError, match="the credential has 1 iterations"):
        advance(ScramServer("SCRAM-SHA-256", lambda _: weak).begin(b"n,,n=alice,r=abc"))


@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"a\0b", b"\0a\0b\0", b"\0\0b", b"\0a\0", b"other\0a\0b", b"\0\xff\0b"],
)
def test_server_rejects_a_message_of_plain(message):
    with pytest.raises(AuthenticationError, match=r"PLAIN|authorization id"):
        advance(PlainServer(lambda user, password: True).begin(message))


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Basic abc\x01\x01"),
        *(b"n,,\x01auth=Bearer abc\x01", b"p,,\x01auth=Bearer abc\x01\x01", b"n,,\x01auth=Bearer a c\x01\x01"),
        *(b"n,,\x01noequals\x01auth=Bearer abc\x01\x01", b"n,,\x01a1=x\x01auth=Bearer abc\x01\x01", b"\xff"),
        b"n,a=other,\x01auth=Bearer abc\x01\x01",
    ],
)
def test_server_rejects_a_message_of_oauthbearer(message):
    with pytest.raises(AuthenticationError, match=r"OAUTHBEARER|authorization id"):
        advance(OAuthBearerServer(lambda token, extensions: Authenticated("alice")).begin(message))


def test_rejected_token_ends_with_an_error_of_the_broker():
    async def token():
        return "abc"

    server = server_of(OAuthBearerServer(lambda token, extensions: None))
    answer = authenticate(server, OAuthBearerClient(token))
    assert answer.error_code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED
    assert INVALID_TOKEN.decode() in answer.error_message


def jwt(payload):
    return f"e30.{base64.urlsafe_b64encode(payload).rstrip(b'=').decode()}.sig"


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("", "an empty token"),
        ("a b", "characters that RFC 6750 does not allow"),
        ("a\x01b", "characters that RFC 6750 does not allow"),
        ("a" * 300_000, "300000 bytes, limit 262144"),
        (None, "a NoneType, expected"),
        (("abc", "soon"), "a tuple, expected"),
        (("abc", NOW * 1000 - 5000), "expired 5 s ago"),
        (jwt(b'{"exp": 1699999990}'), "expired 10 s ago"),
        (OAuthToken("abc", NOW - 1), "expired 1 s ago"),
        (OAuthToken("abc", None, {"auth": "x"}), "'auth' is not the name of an extension"),
        (OAuthToken("abc", None, {"a1": "x"}), "'a1' is not the name of an extension"),
        (OAuthToken("abc", None, {"org": "a\x01b"}), "the value of extension org is not printable"),
    ],
)
def test_unsuitable_tokens_are_named(token, text):
    with pytest.raises(AuthenticationError, match=text):
        check_token(token, NOW)


@pytest.mark.parametrize("payload", [b'{"exp": "x"}', b"{}", b"[]", b"no json", b"[" * 5000, b'{"exp": 1e400}'])
def test_tokens_without_an_expiry_are_accepted(payload):
    assert expiry_of(jwt(payload)) is None and check_token(jwt(payload), NOW).expires_at is None


def test_secrets_are_in_no_text():
    secret = "geheim"
    objects = [
        PlainClient("alice", secret),
        ScramClient("SCRAM-SHA-256", "alice", secret),
        OAuthToken(secret, None, {"org": secret}),
        make_credential("SCRAM-SHA-256", secret),
        Authenticated("alice", secret.encode()),
    ]
    assert not [each for each in map(repr, objects) if secret in each or "stored_key" in each]


# the session of a connection


def plain_server():
    return server_of(PlainServer(lambda user, password: password == "secret"))


def test_session_is_renewed_by_the_same_user_only():
    server = plain_server()
    for _ in range(2):
        assert authenticate(server, PlainClient("alice", "secret")).error_code == 0
    answer = authenticate(server, PlainClient("bob", "secret"))
    assert "the principal of a connection cannot change" in answer.error_message and server.failed


def test_session_does_not_outlive_its_credential():
    async def token():
        return "abc"

    def server(expires_at):
        validate = lambda token, extensions: Authenticated("alice", expires_at=expires_at)  # noqa: E731
        return server_of(OAuthBearerServer(validate))

    assert authenticate(server(NOW + 5), OAuthBearerClient(token)).session_lifetime_ms == 5_000
    assert authenticate(server(None), OAuthBearerClient(token)).session_lifetime_ms == 0, "it does not end"
    assert "has expired" in authenticate(server(NOW - 1), OAuthBearerClient(token)).error_message


def test_messages_in_a_wrong_order_end_the_connection():
    server = plain_server()
    assert answer_of(server, b"\0alice\0secret").error_code == KafkaErrorCode.ILLEGAL_SASL_STATE and server.failed
    server = plain_server()
    server.handshake("PLAIN")
    assert server.handshake("PLAIN") == (KafkaErrorCode.ILLEGAL_SASL_STATE, ["PLAIN"]) and server.failed
    server = plain_server()
    assert server.handshake("GSSAPI") == (KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"]) and server.failed
    assert server.handshake("PLAIN")[0] == KafkaErrorCode.ILLEGAL_SASL_STATE


def test_large_messages_are_rejected():
    server = plain_server()
    server.handshake("PLAIN")
    answer = answer_of(server, bytes(MESSAGE_BYTES_MAX + 1))
    assert "limit 524288" in answer.error_message and server.failed
