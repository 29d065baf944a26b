"""A model of Kafka: what aiokafka's clients of our code see of a broker, its groups and a network."""
