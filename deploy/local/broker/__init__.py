"""A small Kafka-protocol broker for one machine, for development without installing anything."""

from deploy.local.broker.server import Broker, DataDirectoryInUseError, serve

__all__ = ["Broker", "DataDirectoryInUseError", "serve"]
