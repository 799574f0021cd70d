"""The producer: `accumulator` buffers records, `sender` decides which batches leave, `producer` does the I/O."""
