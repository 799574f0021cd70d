"""Other clients' interfaces on the SDK's engine."""
