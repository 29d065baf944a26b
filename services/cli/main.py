"""`freshet`: the group of all commands. Modules are imported when a command is used."""

import importlib
import sys

import click

from services.cli.errors import explained
from services.cli.interrupted import ending_as_by_ctrl_c

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("commands.run", "Run the whole system on this machine, with a simulated web."),
    "demo": ("commands.demo", "Keep copies of real sites on this machine fresh."),
    "worker": ("commands.worker", "Run one worker: ingester, scheduler, receiver, ..."),
    "world": ("commands.world", "Run a simulated web against a running system."),
    "migrate": ("commands.migrate", "Bring the database to the newest schema."),
    "shards": ("commands.shards", "How many shards there are; let them become more."),
    "topics": ("commands.topics", "Create, mend and list the topics on the broker."),
    "positions": ("commands.positions", "Where the workers stand in what they read."),
    "pages": ("commands.pages", "Import and remove pages."),
    "crawl": ("commands.crawl", "Crawl pages at once."),
    "bandwidth": ("commands.bandwidth", "Read and set the budget of crawls."),
    "hosts": ("commands.hosts", "Limit how often a host is crawled, or block it."),
    "groups": ("commands.groups", "Limit how often all hosts of a domain are crawled."),
    "changes": ("commands.changes", "Who changed the budget and limits, and when."),
    "backup": ("commands.backup", "Copy what operators have set, and set it again."),
    "plan": ("commands.plan", "How large an installation must be."),
    "sites": ("commands.sites", "Sites whose sitemaps and feeds the poller reads."),
    "subscriptions": ("commands.subscriptions", "Topics whose hubs tell the receiver of news."),
    "status": ("commands.status", "How the system stands."),
    "doctor": ("commands.doctor", "Whether all that the promises rest on is as it should be."),
    "explain": ("commands.explain", "Why a page was, or was not, crawled."),
    "calibration": ("commands.calibration", "Whether what was predicted of crawls came true."),
    "dead-letters": ("commands.dead_letters", "Messages that could not be taken."),
    "replay": ("commands.replay", "Replay a trace on a virtual clock, and compare policies."),
    "figures": ("commands.figures", "Reproduce the published experiments, as pictures and JSON."),
    "verify": ("commands.verify", "Harm a running system, and check that nothing was lost."),
    "settings": ("commands.settings", "All settings, their values and where they come from."),
    "kernels": ("commands.kernels", "Compile what the workers run, before they are started."),
    "contract": ("commands.contract", "The topics and messages as an AsyncAPI document."),
    "bench": ("commands.bench", "Measure how fast the parts are."),
}
"""Name → module under `services.cli`, and one line for the list."""


_STOP_THEMSELVES = {"worker", "world", "run", "demo"}
"""Commands that finish something, or stop what they have started, on SIGTERM as on Ctrl-C."""


class _LazyCommands(click.Group):
    """Knows its commands' names and lines; loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"services.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> None:
        with explained():
            super().invoke(ctx)
            sys.stdout.flush()


@click.group(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="freshet")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Freshet decides which page to crawl next.

    It keeps a large copy of the web fresh with a limited crawl budget: change signals and crawl
    outcomes come in on Kafka, page state lives in PostgreSQL, crawl requests go out on Kafka.

    \b
    Watch it at work, with nothing installed:
      freshet run
    Operate it on your own servers:
      export KAFKA_BOOTSTRAP_SERVERS=kafka:9092 DATABASE_URL=postgresql://user@db/freshet
      freshet migrate && freshet topics ensure
      freshet pages import pages.csv
      freshet bandwidth set 100/s
      freshet worker scheduler
    """
    # Logs go to standard error, so that they never mix with an answer.
    from shared.runtime.authorities import (  # noqa: PLC0415 - only when a command runs
        trust_as_the_machine_does,
    )
    from shared.runtime.logs import configure_logs  # noqa: PLC0415 - the same

    configure_logs("console", "warning")
    trust_as_the_machine_does()
    if ctx.invoked_subcommand not in _STOP_THEMSELVES:
        ctx.with_resource(ending_as_by_ctrl_c())
    if ctx.invoked_subcommand != "worker":
        # Workers wait for a database that has stopped; who sits before a command does not.
        from shared.store.patience import DATABASE_PATIENCE  # noqa: PLC0415 - the same

        ctx.with_resource(DATABASE_PATIENCE.ending())


if __name__ == "__main__":
    sys.exit(main())
