"""An application of the SDK: an HTTP service that produces an event per request, and poll loops of a group."""

TOPIC = "flights"
GROUP = "controllers"
READY = "ready"
SLOW_CALLBACK_S = 60.0  # other processes use the cores, too
