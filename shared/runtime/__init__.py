"""What every worker runs on: settings, clock, logs, metrics, Kafka clients and the Faust app."""
