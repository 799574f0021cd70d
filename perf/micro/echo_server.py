"""A service that answers every request with 64 bytes, in a process of its own; for measuring the connection layer.

It prints its port, then after each line read from standard input a JSON line: CPU seconds, peak RSS and counters.
"""

import asyncio
import gc
import json
import resource
import sys

import uvloop

from kafkalite._speedups.net.framing import Limits
from kafkalite.net.listener import Listener

PADDING = bytes(56)


class Answering:
    def connected(self, connection):
        return True

    def disconnected(self, connection):
        pass

    def write_pending(self):
        pass

    def request(self, reply, frame):
        reply.send(bytes(frame[4:8]) + b"\0\0\0\0" + PADDING)


def figures(hub):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * resource.getpagesize()
    names = ("requests", "iterations", "flushes", "bytes_in", "bytes_out")
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "rss": resident} | {name: getattr(hub, name) for name in names}


async def main():
    loop = asyncio.get_running_loop()
    listener = Listener(loop, Answering(), Limits())
    print(listener.bind("127.0.0.1", 0)[1], flush=True)
    done = asyncio.Event()

    def asked():
        line = sys.stdin.readline()
        if not line:
            done.set()
            return
        gc.collect()
        print(json.dumps(figures(listener.reactor)), flush=True)

    loop.add_reader(sys.stdin.fileno(), asked)
    await done.wait()
    loop.remove_reader(sys.stdin.fileno())
    await listener.close(0.0)


if __name__ == "__main__":
    uvloop.run(main())
