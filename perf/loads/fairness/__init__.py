"""Hostile loads, and how long another client waits beside them; `--loads fairness` runs all (docs/performance.md)."""

from perf.loads.fairness import controller, frames, jobs, members, periodic, topics, transactions

LOADS = (
    *topics.LOADS,
    *frames.LOADS,
    *jobs.LOADS,
    *members.LOADS,
    *periodic.LOADS,
    *controller.LOADS,
    *transactions.LOADS,
)
