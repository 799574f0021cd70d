"""Formats of the entries of index files; offsets are relative to the base offset of the segment."""

import struct

OFFSET_ENTRY = struct.Struct(">ii")  # last offset of a batch, and its position
TIME_ENTRY = struct.Struct(">qi")  # highest timestamp in ms, and its offset
