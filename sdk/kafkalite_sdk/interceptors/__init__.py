"""Interceptors: named stages of a producer and of a consumer at which an application's methods are called.

Names are imported on first use. Tracing is in `kafkalite_sdk.interceptors.opentelemetry`.
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from kafkalite_sdk.dead_letters import DeadLetterTopic as DeadLetterTopic
    from kafkalite_sdk.interceptors.batches import SealedBatch as SealedBatch
    from kafkalite_sdk.interceptors.consumer import ConsumerInterceptor as ConsumerInterceptor
    from kafkalite_sdk.interceptors.producer import ProducerInterceptor as ProducerInterceptor

_MODULES = {
    "ConsumerInterceptor": "kafkalite_sdk.interceptors.consumer",
    "DeadLetterTopic": "kafkalite_sdk.dead_letters",
    "ProducerInterceptor": "kafkalite_sdk.interceptors.producer",
    "SealedBatch": "kafkalite_sdk.interceptors.batches",
}

__all__ = list(_MODULES)


__getattr__ = lazy_names(__name__, _MODULES)
