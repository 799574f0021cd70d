"""Tests that the coordinators are imported in small steps, in a child process without these modules."""

import json
import subprocess
import sys
from itertools import pairwise

MODULES_MAX = 20  # of one step
IN_ALL = 60  # at least
CODE = """
import json, sys
import kafkalite.cli.serve
import kafkalite.server.broker
from kafkalite.server.requests.preload import import_group_coordinator

counts = [len(sys.modules)]
for _ in import_group_coordinator():
    counts.append(len(sys.modules))
counts.append(len(sys.modules))
import kafkalite.coordinators.group.coordinator
from kafkalite.server.handlers import heartbeat, join_group, sync_group
from kafkalite.server.handlers import consumer_group_heartbeat, offset_commit, offset_fetch
counts.append(len(sys.modules))
print(json.dumps(counts))
"""


def test_steps_import_few_modules_each_and_all_that_a_group_needs() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout)
    steps = [after - before for before, after in pairwise(counts)]
    assert steps[-1] == 0, "the steps import the coordinator, and the handlers of a member's first requests"
    assert sum(steps) >= IN_ALL, "the coordinator is not imported before the steps"
    assert max(steps) <= MODULES_MAX, steps


OF_TRANSACTIONS = """
import json, sys
import kafkalite.cli.serve
import kafkalite.server.broker
from kafkalite.server.requests.preload import (
    has_transaction_coordinator, import_group_coordinator, import_transaction_coordinator,
)

for _ in import_group_coordinator():
    pass
assert not has_transaction_coordinator()
counts = [len(sys.modules)]
for _ in import_transaction_coordinator():
    counts.append(len(sys.modules))
counts.append(len(sys.modules))
assert has_transaction_coordinator()
import kafkalite.coordinators.transaction.coordinator
from kafkalite.server.handlers import add_partitions_to_txn, end_txn, init_producer_id
counts.append(len(sys.modules))
print(json.dumps(counts))
"""


def test_steps_import_what_a_transactional_producer_needs() -> None:
    done = subprocess.run([sys.executable, "-c", OF_TRANSACTIONS], capture_output=True, text=True, check=True)
    counts = json.loads(done.stdout)
    steps = [after - before for before, after in pairwise(counts)]
    assert steps[-1] == 0 and sum(steps) > 10 and max(steps) <= MODULES_MAX, steps
