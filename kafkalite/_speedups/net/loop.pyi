from collections.abc import Callable
from typing import Any, Protocol

from kafkalite._speedups.net.request_memory import RequestMemory, RequestMemoryHolder

class Limits:
    request_bytes_max: int
    unsent_bytes_max: int
    requests_bytes_max: int
    all_requests_bytes_max: int
    open_replies_max: int
    connections_max: int
    connections_per_ip_max: int
    connections_per_ip_overrides: dict[str, int]
    idle_ms_max: int
    authenticate: bool
    login_bytes_max: int
    memory_kept_max: int
    guaranteed_bytes: int
    connection_budget_ns: int
    iteration_budget_ns: int
    def __init__(
        self,
        *,
        request_bytes_max: int = ...,
        unsent_bytes_max: int = ...,
        open_replies_max: int = ...,
        connections_max: int = ...,
        connections_per_ip_max: int = ...,
        connections_per_ip_overrides: dict[str, int] | None = ...,
        idle_ms_max: int = ...,
        authenticate: bool = ...,
        login_bytes_max: int = ...,
        memory_kept_max: int = ...,
        requests_bytes_max: int = ...,
        all_requests_bytes_max: int = ...,
        guaranteed_bytes: int = ...,
        connection_budget_ns: int = ...,
        iteration_budget_ns: int = ...,
    ) -> None: ...

class Service(Protocol):
    def connected(self, connection: Any) -> bool: ...
    def request(self, reply: Any, frame: memoryview) -> None: ...
    def write_pending(self) -> None: ...
    def disconnected(self, connection: Any) -> None: ...

class Pool:
    kept: int
    def free_unused(self) -> None: ...

class Hub:
    pool: Pool
    service: Service
    limits: Limits
    in_iteration: bool
    requests: int
    iterations: int
    flushes: int
    bytes_in: int
    bytes_out: int
    handled_ns: int
    memory: RequestMemory
    several_iterations: bool
    def __init__(
        self, service: Service, limits: Limits | None = None, clock: Callable[[], int] | None = None
    ) -> None: ...
    def wake(self) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def run(self) -> None: ...
    def schedule(self) -> None: ...
    def ns_since_look(self) -> int: ...
    def accept_connection(self, connection: ConnectionBase) -> None: ...
    def fault(self, site: str, error: BaseException) -> None: ...
    def log_limited(self, site: str, text: str) -> None: ...
    def may_log(self, key: object) -> bool: ...

class ConnectionBase(RequestMemoryHolder):
    hub: Hub
    closed: bool
    reason: str | None
    def transmit(self) -> None: ...
    def update_interest(self) -> None: ...
    def gone(self) -> None: ...
    def close(self, reason: str) -> None: ...
