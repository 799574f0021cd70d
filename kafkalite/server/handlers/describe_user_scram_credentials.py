"""DescribeUserScramCredentials, key 50, v0: the SCRAM mechanisms and iterations of users (KIP-554).

They are read from the tree, so a change that any broker has acknowledged is visible.

Source: ScramImage.describe of Apache Kafka 4.3.
"""

from collections import Counter
from collections.abc import Generator, Mapping
from functools import partial

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.client_quotas import can_have_node
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.cluster.credentials.mechanisms import NUMBERS
from kafkalite.cluster.credentials.reads import Found, read_users
from kafkalite.cluster.credentials.texts import decode_credentials
from kafkalite.coordination.errors import CoordinationError
from kafkalite.errors import KafkaErrorCode, reason_of, shorten
from kafkalite.net.sasl.scram import ScramCredential
from kafkalite.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkalite.server.requests.call import UserCall

Response = DescribeUserScramCredentialsResponse
Result = Response.DescribeUserScramCredentialsResult
Credentials = Mapping[str, ScramCredential]


def describe_user_scram_credentials(call: UserCall, request: DescribeUserScramCredentialsRequest) -> None:
    """Answer for each named user, or for all that have credentials."""
    times = Counter(user.name for user in request.users or ())
    names = [name for name, count in times.items() if count == 1 and can_have_node(name)]
    answer = call.guard(partial(read, call, times))
    read_users(call.context.metadata, call.context.slicer, names if times else None, answer)


def read(call: UserCall, times: Mapping[str, int], outcome: Outcome) -> None:
    """Answer with the users that were read.

    Arguments:
        call: of the request.
        times: how often each user is named; none = all users.
        outcome: of the read.
    """
    if isinstance(outcome.error, CoordinationError):
        code = code_of(outcome.error)
        call.answer(Response(error_code=code, error_message=reason_of(code), results=[]))
        return
    found: Found = outcome.result()
    call.answer_from(build_response(call, times, found), len(times) or len(found))


def build_response(call: UserCall, times: Mapping[str, int], found: Found) -> Generator[None, None, Response]:
    results = call.elements()
    for name in times or found:
        credentials, _errors = decode_credentials(found.get(name) or {})
        if credentials or times:
            results.add(result(name, times.get(name, 1), credentials))
        yield
    return Response(error_message=None, results=results.finish())


def result(name: str, times: int, credentials: Credentials) -> Result:
    """Describe one user."""
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return failure_of(name, KafkaErrorCode.DUPLICATE_RESOURCE, text)
    if not credentials:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return failure_of(name, KafkaErrorCode.RESOURCE_NOT_FOUND, text)
    infos = [
        Result.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=credential.iterations)
        for mechanism, credential in credentials.items()
    ]
    return Result(user=name, error_message=None, credential_infos=infos)


def failure_of(name: str, code: KafkaErrorCode, text: str) -> Result:
    """Return an error."""
    return Result(user=name, error_code=code, error_message=shorten(text), credential_infos=[])
