"""The rows of the transition tables that simulations use: partitions and topics of the controller, fetches.

tests/unit/state takes every row.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import pytest

from kafkalite.state.controller.partitions import table as partitions
from kafkalite.state.controller.topics import table as topics
from kafkalite.state.follower import partition_fetch
from tests.kit.counted_table import CountedTable

# Of at least half of the seeds: table, state and events.
COMMON = (
    "fetch FETCHING: RECORDS REFUSED DIVERGED FENCED NEW_EPOCH",
    "fetch TRUNCATING: JOB_ENDED",
    "fetch DELAYED: PAUSE_ENDED",
    "fetch FAILED: NEW_EPOCH",
    "partition NEW: STATE_CHOSEN",
    "partition CREATING: LED",
    "partition ONLINE: REPLICAS_CHANGED STATE_CHOSEN REQUESTED DELETED",
    "partition OFFLINE: REPLICAS_CHANGED STATE_CHOSEN",
    "partition ELECTING: LED LEADERLESS ISR_WRITTEN REPLICAS_CHANGED",
    "partition READING: LED LEADERLESS MISSING",
    "topic UNREAD: READ",
    "topic ACTIVE: READ DELETION_REQUESTED DELETION_CONFIRMED",
    "topic DELETING: REPLICAS_DELETED ALL_DELETED",
    "topic REMOVING: READ PART_WRITTEN WRITTEN",
)
# Of no seed, or of less than one in fifty, by the reason.
RARE = {
    "a simulated broker has one log directory, and stops with it": ("fetch * LOG_FAILED",),
    "another program changes the nodes of a topic, or its request: see tests/story/controller/test_simulation.py": (
        "partition INVALID *",
        "partition * UNREADABLE",
        "topic INVALID *",
        "topic WITHOUT_ID *",
        "topic * READ_WITHOUT_ID",
        "topic * UNREADABLE",
        "topic * MISSING",
        "topic * DELETION_WITHDRAWN",
        "topic ACTIVE WRITTEN",
        "topic ACTIVE WRITE_FAILED",
        "topic DELETING READ",
        "topic INELIGIBLE READ",
    ),
    "two rare events at once": (
        "fetch FETCHING RESTART_REQUIRED",
        "fetch FLUSHING NEW_EPOCH",
        "fetch FLUSHING REFUSED",
        "fetch LOOKING_UP DIVERGED",
        "fetch LOOKING_UP FENCED",
        "fetch LOOKING_UP NEW_EPOCH",
        "fetch LOOKING_UP REFUSED",
        "fetch RESTARTING NEW_EPOCH",
        "fetch RESTARTING REFUSED",
        "fetch TRUNCATING NEW_EPOCH",
        "fetch TRUNCATING REFUSED",
        "partition CREATING DELETED",
        "partition CREATING REQUESTED",
        "partition NEW *",
        "partition OFFLINE LEADERLESS",
        "partition OFFLINE LED",
        "partition ONLINE LEADERLESS",
        "partition ONLINE LED",
        "partition READING REPLICAS_CHANGED",
        "topic REMOVING WRITE_FAILED",
        "topic UNREAD DELETION_REQUESTED",
    ),
}


def common_rows() -> set[str]:
    """The rows of COMMON."""
    states = (line.partition(": ") for line in COMMON)
    return {f"{state} {event}" for state, _, events in states for event in events.split()}


def is_rare(row: str) -> bool:
    """Whether a row belongs to RARE, and not to COMMON."""
    patterns = (pattern for reason in RARE.values() for pattern in reason)
    return row not in common_rows() and any(fnmatch(row, pattern) for pattern in patterns)


class UsedRows:
    """Counts the rows from now on.

    Arguments:
        patch: puts the tables back at the end of the test.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._partitions: CountedTable[Any, Any] = CountedTable(partitions.TRANSITIONS)
        self._topics: CountedTable[Any, Any] = CountedTable(topics.TRANSITIONS)
        self._fetches: dict[Any, CountedTable[Any, Any]] = {
            state: CountedTable(dict(rows)) for state, rows in partition_fetch.TRANSITIONS.items()
        }
        patch.setattr(partitions, "TRANSITIONS", self._partitions)
        patch.setattr(topics, "TRANSITIONS", self._topics)
        patch.setattr(partition_fetch, "TRANSITIONS", self._fetches)

    @property
    def unused(self) -> set[str]:
        """The rows that were not used: the table, the state and the event."""
        controller = {"partition": self._partitions, "topic": self._topics}
        found = {
            f"{name} {state.name} {event.name}"
            for name, table in controller.items()
            for state, event in table.keys() - table.used
        }
        return found | {
            f"fetch {state.name} {event.name}"
            for state, rows in self._fetches.items()
            for event in rows.keys() - rows.used
        }
