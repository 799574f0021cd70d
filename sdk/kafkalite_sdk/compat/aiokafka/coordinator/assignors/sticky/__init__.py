"""aiokafka's sticky assignor."""
