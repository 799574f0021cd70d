"""The producer: `accumulator` buffers records, `sender` decides which batches leave or are retried.

`driver` does the I/O, `producer` is what an application calls.
"""
