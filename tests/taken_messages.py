"""Commands that publish, where no broker is."""

from services.cli import kafka


class Taken:
    """A publisher whose broker takes whatever it is given."""

    stuck_seconds = 0.0

    def __init__(self, settings):
        self.settings = settings

    async def start(self): ...

    async def stop(self, _patience_seconds=None): ...

    async def flush(self): ...

    async def partitions_of(self, _topic):
        return self.settings.partitions

    async def queue_batches(self, _messages): ...


def publish_by(monkeypatch, publisher):
    """Let commands send by publishers of a class, or made by a function, and ask for no broker."""
    monkeypatch.setattr(kafka, "require_broker", lambda _: None)
    monkeypatch.setattr(kafka, "Publisher", publisher)
