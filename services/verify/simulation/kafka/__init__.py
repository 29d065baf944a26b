"""A model of Kafka: what our code sees through aiokafka of a broker, its groups and a network."""
