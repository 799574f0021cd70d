"""The comparison harness: brokers as processes of their own, driven by the same loads in turn.

Laws: a figure exists only if every record sent was read back and nothing failed (`errors.VerificationError` ends the
run otherwise). Brokers know nothing of loads and loads nothing of each other. What is measured is the broker's process;
the client's own cost is never counted. `python -m perf --help` shows the commands, docs/performance.md how to read
them.
"""
