"""A simulated web with its pingers and crawlers: ordinary Kafka clients to run Freshet against."""
