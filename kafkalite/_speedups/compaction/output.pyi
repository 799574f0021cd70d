from typing import Self

class Output:
    def __new__(cls, capacity: int) -> Self: ...
