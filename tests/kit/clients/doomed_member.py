"""A member in a process of its own, to be killed: `python -m ... KIND ADDRESS GROUP TOPIC SESSION_MS [HISTORY]`.

It says `assigned` when it has been given partitions, and then lives until it is killed. With a file for its history it
notes there what it has read (topic, partition, offset), then commits that, then says `committed`; again and again.
"""

import sys
import threading
from contextlib import nullcontext
from typing import TextIO

from tests.kit.clients.members import KINDS, REFUSED, Crowd, Member, Wish
from tests.kit.clients.sdk import SDK_KINDS


def main(name: str, address: str, group: str, topic: str, session_ms: str, history: str | None = None) -> None:
    (kind,) = (each for each in (*KINDS, *SDK_KINDS) if each.name == name)
    with Crowd(address) as crowd:
        member = crowd.join(kind, Wish(group, (topic,), session_ms=int(session_ms)))
        with nullcontext() if history is None else open(history, "w", encoding="utf-8") as book:
            crowd.wait(lambda: member.assigned, "partitions")
            print("assigned", flush=True)
            if book is None:
                threading.Event().wait()
            else:
                work(crowd, member, book)


def work(crowd: Crowd, member: Member, book: TextIO) -> None:
    """Note, commit and report, in an endless loop."""
    noted = 0

    def note() -> None:
        nonlocal noted
        fresh = member.seen[noted:]
        book.writelines(f"{topic}\t{partition}\t{offset}\n" for topic, partition, offset in fresh)
        book.flush()
        noted += len(fresh)

    while True:
        crowd.wait(lambda: len(member.seen) > noted, "something to read")
        try:
            member.commit(note)
        except REFUSED:
            continue  # in a rebalance; the next owner reads the same records again
        print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
