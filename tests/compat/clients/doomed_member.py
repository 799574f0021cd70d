"""A member in a process of its own, to be killed: `python -m ... KIND ADDRESS GROUP TOPIC SESSION_MS`.

It says `assigned` when it has been given partitions, and then lives until it is killed.
"""

import sys
import threading

from tests.compat.clients.members import KINDS, Crowd, Wish


def main(name: str, address: str, group: str, topic: str, session_ms: str) -> None:
    (kind,) = (each for each in KINDS if each.name == name)
    with Crowd(address) as crowd:
        member = crowd.join(kind, Wish(group, (topic,), session_ms=int(session_ms)))
        crowd.wait(lambda: member.assigned, "partitions")
        print("assigned", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
