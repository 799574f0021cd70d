MAKE_DIRECTORY: int
CREATE_EMPTY: int
WRITE_FILE: int
RENAME: int

def apply_changes(changes: list[tuple[int, bytes, bytes]], sync_soon: bool = False) -> dict[int, OSError]: ...
