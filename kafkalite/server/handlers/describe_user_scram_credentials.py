"""DescribeUserScramCredentials, key 50, v0: returns that no user has credentials (KIP-554).

The broker does not authenticate by SCRAM yet. kafka-configs sends this request with each description of users, whose
quotas it would not print without a response.

Source: ScramImage.describe of Apache Kafka 4.3.
"""

from collections import Counter
from collections.abc import Generator

from kafkalite.errors import KafkaErrorCode, shorten
from kafkalite.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkalite.server.requests.call import PlainCall

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def describe_user_scram_credentials(call: PlainCall, request: DescribeUserScramCredentialsRequest) -> None:
    """Answer for each named user."""
    call.answer_from(build_response(call, request), len(request.users or ()))


def build_response(
    call: PlainCall, request: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    results = call.elements()
    for name, times in Counter(user.name for user in request.users or ()).items():
        results.add(unknown(name) if times == 1 else twice(name))
        yield
    return DescribeUserScramCredentialsResponse(error_message=None, results=results.finish())


def unknown(name: str) -> Result:
    text = shorten(f"Attempt to describe a user credential that does not exist: {name}")
    return Result(user=name, error_code=KafkaErrorCode.RESOURCE_NOT_FOUND, error_message=text, credential_infos=[])


def twice(name: str) -> Result:
    text = shorten(f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}")
    return Result(user=name, error_code=KafkaErrorCode.DUPLICATE_RESOURCE, error_message=text, credential_infos=[])
