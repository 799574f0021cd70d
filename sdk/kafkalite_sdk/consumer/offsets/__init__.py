"""Where a consumer reads: positions, their reset and validation, committed offsets, and commits."""
