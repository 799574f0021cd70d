"""The checks of Metadata, which need the image of the cluster."""

from collections.abc import Callable
from typing import Any

from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.server.requests.authorization.authorized_call import AuthorizedCall
from kafkalite.server.requests.authorization.refusals import keep_entries
from kafkalite.server.requests.authorization.table import CREATE, DESCRIBE, ERRORS, TOPIC
from kafkalite.server.requests.deferred_free import empty_in_steps
from kafkalite.slicing import Steps
from kafkalite.state.topic_names import is_internal

Topic = MetadataResponse.MetadataResponseTopic
ZERO_ID = bytes(16)


def split_topics(
    call: Any,
    request: MetadataRequest,
    find: Callable[[str | None, bytes], Any],
    is_missing: Callable[[str], bool],
    may_create: bool,
) -> Steps:
    """Remove refused topics from a request; the call adds them to its response.

    Arguments:
        call: an `AuthorizedCall`.
        request: for named topics.
        find: returns the topic of a name or an id, None = unknown.
        is_missing: whether a topic does not exist and could be created.
        may_create: whether the request creates missing topics.
    """
    assert isinstance(call, AuthorizedCall)
    kept: list[Any] = []
    removed: list[Any] = []
    refused: dict[tuple[str | None, bytes], Topic] = {}
    for wanted in request.topics or ():
        yield
        by_id = wanted.topic_id != ZERO_ID or wanted.name is None
        topic = find(wanted.name, wanted.topic_id) if by_id else None
        name = wanted.name if not by_id else None if topic is None else topic.name
        if name is None or (
            call.authorization.allows(DESCRIBE, TOPIC, name)
            and (by_id or not may_create or not is_missing(name) or allows_creation(call, name))
        ):
            kept.append(wanted)
            continue
        removed.append(wanted)
        shown = None if by_id else name
        refused[shown, wanted.topic_id] = Topic(
            error_code=ERRORS[TOPIC],
            name=shown,
            topic_id=wanted.topic_id,
            is_internal=not by_id and is_internal(name) and name in call.authorization.kept(DESCRIBE, TOPIC),
            partitions=[],
        )
    if refused:
        yield from keep_entries(request, "topics", kept, removed)
        entries = call.elements()  # only now: a topic that is named twice has one entry
        for entry in refused.values():
            entries.add(entry)
            yield
        call.refused = "topics", entries.finish()
        yield from empty_in_steps(refused)


def allows_creation(call: AuthorizedCall[Any], name: str) -> bool:
    """Return whether the client may create a topic."""
    return call.authorization.allows_cluster(CREATE, log_denied=False) or call.authorization.allows(CREATE, TOPIC, name)
