"""The offsets of a consumer: positions, their reset and validation, committed offsets, and commits."""
