"""Measures client libraries: `python -m perf clients`.

1. Each run is a process of its own with one client (`worker.py`); it warms up, then measures its own wall and CPU time.
2. Runs of the clients are interleaved, and the order rotates.
3. A run counts only if every record was acknowledged or read; the topics are checked through an independent client.
"""
