from kafkalite._speedups.storage.producer_state import ProducerState
from kafkalite._speedups.storage.segment_core import SegmentCore

class SegmentScan:
    end: int
    next_offset: int
    back: int
    batches: int
    whole: bool
    epochs: list[tuple[int, int]]
    aborted: list[tuple[int, int, int, int]]

def note_producers(
    segment: SegmentCore, from_offset: int, producers: ProducerState
) -> list[tuple[int, int, int, int]]: ...
def scan(
    segment: SegmentCore,
    position: int,
    size: int,
    interval: int,
    producers: ProducerState | None = None,
    producers_from: int = 0,
    next_offset: int = -1,
) -> SegmentScan: ...
