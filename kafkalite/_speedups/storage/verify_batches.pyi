class VerifiedRun:
    count: int
    end: int
    next_offset: int
    before_gap: int
    def columns(self) -> tuple[bytes, bytes, bytes, bytes]: ...

def run(
    data: bytes, at: int, position: int, segment_base: int, next_offset: int, leader_epoch: int, gaps: bool
) -> VerifiedRun: ...
def find_batch(data: bytes, segment_base: int) -> int: ...
