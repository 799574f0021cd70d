"""aiokafka's assignors: their classes name the assignors of the engine."""
