"""aiokafka's assignors."""
