from kafkalite._speedups.groups.offset_commit_request import PackedCommit

def encode_response(
    request: PackedCommit, correlation_id: int, errors: int | tuple[int, ...], throttle_ms: int = 0
) -> bytes:
    """The response to a request, with its header.

    Arguments:
        request: the response has its version, and its topics and partitions in the same order.
        correlation_id: of the request.
        errors: the Kafka error code of all partitions, or of each; 0 = none.
        throttle_ms: the throttle time.

    Raises: ValueError if there are not as many errors as partitions, or the request was not decoded by `read_packed`.
    """
