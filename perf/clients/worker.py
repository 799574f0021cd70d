"""The process of one run: `python -m perf.clients.worker CLIENT JOB` prints the sample as JSON."""

import json
import sys

from perf.clients.base import Job
from perf.clients.registry import load


def main(name: str, job: str) -> None:
    print(json.dumps(load(name).run(Job(**json.loads(job)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
