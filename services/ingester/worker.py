"""The ingester's process."""

from services.ingester.handler import SignalHandler
from services.ingester.reading import SignalReader
from shared.contracts.topics import SIGNALS
from shared.runtime.group_worker import GroupWorker
from shared.runtime.settings import Settings, load_settings
from shared.runtime.tracing import make_tracing
from shared.runtime.worker import make_app, run_app

NAME = "ingester"


class Ingester(GroupWorker):
    """Reads `signals`, writes `page-signals`."""

    reads = SIGNALS.name

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.tracing = make_tracing(settings, NAME)
        self._handler: SignalHandler = SignalHandler(
            settings, self.clock, self._publisher, self.tracing
        )

    def make_reader(self) -> SignalReader:
        """Of `signals`."""
        return SignalReader(self.settings, self._handler.handle)

    def take_settings(self, settings: Settings) -> None:
        """Sources, their keys and limits."""
        super().take_settings(settings)
        self._handler.take_settings(settings)


def main() -> None:
    """Run the ingester until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Ingester(settings)), settings)
