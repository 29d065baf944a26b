"""`freshet verify`."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from services.cli.errors import UserError
from shared.terminal.numbers import Number

LOOK_SECONDS = 0.3

SIMULATED_SEEDS = 100
"""Unless told else."""

MUTANT_SEEDS = 50
"""A planted fault that nothing has found by then is not found."""


@click.command()
@click.option(
    "--minutes",
    type=Number(min=0.1, max=600),
    default=5.0,
    show_default=True,
    help="How long faults come; starting and checking are on top.",
)
@click.option(
    "--faults",
    default="all",
    show_default=True,
    help="Which, with commas between: kill, term, pause, rebalance, broker, postgres, network, "
    "clock, duplicate, reorder, poison; with --topology cluster, in place of broker: node-kill, "
    "node-stop, node-pause, node-cut, standby, failover, forget, disk, node-disk (where file "
    "systems may be mounted); or none. And grow, which is not among all: the shards become "
    "four times as many, and then twice as many, beside the others (all,grow).",
)
@click.option(
    "--topology",
    type=click.Choice(["one", "cluster"]),
    default="one",
    show_default=True,
    help="cluster: three nodes of Apache Kafka, PostgreSQL with a standby, two of every worker.",
)
@click.option(
    "--broker",
    type=click.Choice(["local", "apache"]),
    default="local",
    show_default=True,
    help="apache: Apache Kafka from Maven Central; needs Java and Maven.",
)
@click.option(
    "--transactions",
    is_flag=True,
    help="Half of the crawlers publish in Kafka's transactions, and abort some; with --broker "
    "apache or --topology cluster.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Of the faults; with --simulate the only seed that is run, or with --seeds the first "
    "one.  [default: 0]",
)
@click.option(
    "--before",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of another version's checkout: its workers run at first, and are replaced one by "
    "one. What is learned is not compared then.",
)
@click.option(
    "--away",
    type=Number(min=0.1, max=7200),
    help="Seconds for which the faults broker and postgres take theirs away.  [default: 0.3 to 4]",
)
@click.option("--pages", type=click.IntRange(min=200, max=200_000), default=3000, show_default=True)
@click.option(
    "--rate",
    type=Number(min=10, max=10_000),
    help="The highest budget, crawls per second.  [default: 180; of a cluster 120]",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for logs and data; without it they are removed where all is well.",
)
@click.option(
    "--simulate",
    is_flag=True,
    help="In one process on virtual time, on models of Kafka and PostgreSQL; --minutes, --pages, "
    "--rate, --broker and --keep do not count.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=10_000_000),
    help="With --simulate: how many.  [default: 1 with --seed, else 100]  With --mutants: how many "
    "at most for each.  [default: 50]",
)
@click.option(
    "--mutants",
    is_flag=True,
    help="Plant faults into simulated workers, one at a time, and show which check finds each.",
)
@click.option(
    "--database",
    type=click.Choice(["model", "postgres"]),
    default="model",
    show_default=True,
    help="With --simulate: postgres runs a real one beside the model, and compares them, without "
    "the faults import, records-lost and topic-anew.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(**given: Any) -> None:
    """Harm a running system on purpose, and check that nothing was lost.

    PostgreSQL, a broker, the workers and a world of pages, pingers and crawlers start on this
    machine, all of it apart from any other run. Faults come at random times, the same ones for the
    same seed. A ledger is kept outside the system; at the end, everything on the topics and in
    PostgreSQL is checked against it, and against a run of the same events without faults. Exit
    code 1: a promise was broken.

    \b
    Examples:
      freshet verify --minutes 1
      freshet verify --minutes 5 --broker apache --seed 7 --json
      freshet verify --minutes 2 --faults kill,postgres
      freshet verify --minutes 2 --faults all,grow
      freshet verify --minutes 5 --topology cluster
      freshet verify --minutes 2 --topology cluster --faults grow,node-kill
      freshet verify --minutes 1 --faults broker,postgres --away 360
      freshet verify --minutes 2 --before ../last-release
      freshet verify --simulate --seeds 1000
      freshet verify --simulate --seed 17
      freshet verify --simulate --database postgres --seeds 20
      freshet verify --mutants
    """
    import asyncio  # noqa: PLC0415 - commands load what they need

    if given["simulate"] and given["mutants"]:
        raise UserError("--mutants plants faults of its own: leave --simulate out")
    if given["mutants"]:
        _plant(given)
        return
    if given["simulate"]:
        _simulate(given)
        return
    if given["seeds"] is not None:
        raise UserError("--seeds counts simulations: give --simulate or --mutants too")

    from services.verify.plan import VerifyPlan  # noqa: PLC0415
    from services.verify.report import summary  # noqa: PLC0415
    from shared.runtime.logs import configure_logs  # noqa: PLC0415
    from shared.terminal.output import show_json  # noqa: PLC0415

    keep: Path | None = given["keep"]
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise UserError(f"{keep} is not empty: name another folder for --keep")
    broker: Literal["local", "apache"] = given["broker"]
    if given["topology"] == "cluster":
        broker = "apache"
    if given["transactions"] and broker == "local":
        raise UserError("the local broker has no transactions: give --broker apache too")
    plan = VerifyPlan(
        seconds=60.0 * given["minutes"],
        faults=_faults(given["faults"], given["topology"]),
        topology=given["topology"],
        broker=broker,
        in_transactions=given["transactions"],
        seed=given["seed"] or 0,
        pages=given["pages"],
        rate=given["rate"],
        away_seconds=(given["away"], given["away"]) if given["away"] else None,
        before=given["before"],
        keep=keep,
    )
    configure_logs("console", "critical")  # servers come and go: that is no news here
    report = asyncio.run(_verify(plan))
    for line in summary(report):
        click.echo(line, err=True)
    if given["as_json"]:
        show_json(report)
    if not report["passed"]:
        raise click.exceptions.Exit(1)


def _simulate(given: dict[str, Any]) -> None:
    """Run simulations; one seed alone tells all that happens in it."""
    from services.verify.simulation.campaign import campaign, trace_of, warm_up  # noqa: PLC0415
    from services.verify.simulation.plan import KINDS, Scale, kinds_of  # noqa: PLC0415
    from shared.terminal.output import show_json  # noqa: PLC0415

    kinds, unknown = kinds_of(given["faults"])
    if unknown:
        raise UserError(f"no such faults: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    scale = Scale(kinds=kinds)
    first = given["seed"] if given["seed"] is not None else 0
    alone = given["seed"] is not None and given["seeds"] is None
    seeds = range(first, first + (1 if alone else given["seeds"] or SIMULATED_SEEDS))
    if alone:
        warm_up()
        for line in trace_of(first, scale):
            click.echo(line, err=given["as_json"])

    def say(line: str) -> None:
        click.echo(line, err=True)

    with ExitStack() as stack:
        database_url = None
        if given["database"] == "postgres":
            from services.verify.simulation.store.postgres import NOT_IN_STEP  # noqa: PLC0415
            from services.verify.simulation.store.server import postgres_server  # noqa: PLC0415

            scale = replace(scale, kinds=tuple(k for k in kinds if k not in NOT_IN_STEP))
            database_url = stack.enter_context(postgres_server(scale.partitions))
        report = campaign(seeds, scale, say, database_url=database_url)
    say(
        f"{report['seeds']} seeds from {first} on: {len(report['failed'])} failed; "
        f"{report['seconds']} s, {report['seeds_per_second']} seeds a second, "
        f"{report['cpu_seconds_per_seed']} CPU seconds each"
    )
    if given["as_json"]:
        show_json(report)
    if not report["passed"]:
        raise click.exceptions.Exit(1)


def _plant(given: dict[str, Any]) -> None:
    """Plant faults, and see them found."""
    from services.verify.mutants.campaign import campaign  # noqa: PLC0415
    from shared.terminal.output import show_json  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(line, err=True)

    first = given["seed"] or 0
    report = campaign(range(first, first + (given["seeds"] or MUTANT_SEEDS)), say)
    say(f"{report['caught']} of {report['mutants']} faults found; {report['seconds']} s")
    if given["as_json"]:
        show_json(report)
    if not report["passed"]:
        raise click.exceptions.Exit(1)


def _faults(text: str, topology: Literal["one", "cluster"]) -> Any:
    from services.verify.disks import may_mount  # noqa: PLC0415
    from services.verify.plan import DISKS, FAULTS  # noqa: PLC0415

    known = FAULTS[topology]
    if text == "none":
        return ()
    given = [name.strip() for name in text.split(",") if name.strip()]
    names = tuple(one for name in given for one in (_possible(known) if name == "all" else (name,)))
    unknown = [name for name in names if name not in (*known, "grow")]
    if unknown or not names:
        there = ", ".join((*known, "grow"))
        raise UserError(f"no such faults: {', '.join(unknown)}; there are {there}")
    if not DISKS.isdisjoint(names) and not may_mount():
        raise UserError(
            "a disk is filled that is mounted for it: run this as root, or leave it out"
        )
    return names


def _possible(known: tuple[str, ...]) -> tuple[str, ...]:
    """Those that can be done on this machine."""
    from services.verify.disks import may_mount  # noqa: PLC0415
    from services.verify.plan import DISKS  # noqa: PLC0415

    if may_mount() or DISKS.isdisjoint(known):
        return known
    left_out = ", ".join(sorted(DISKS))
    click.echo(f"left out, as file systems may not be mounted here: {left_out}", err=True)
    return tuple(name for name in known if name not in DISKS)


async def _verify(plan: Any) -> dict[str, Any]:
    import asyncio  # noqa: PLC0415
    import sys  # noqa: PLC0415

    from services.verify.verification import Verification  # noqa: PLC0415
    from services.verify.view import Watcher  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(line, err=True)

    verification = Verification(plan, say)
    with Watcher(is_terminal=sys.stderr.isatty()) as watch:
        running = asyncio.ensure_future(verification.run())
        while not running.done():
            watch(verification)
            await asyncio.wait([running], timeout=LOOK_SECONDS)
    report = running.result()
    if report["passed"]:
        verification.clean_up()
    else:
        say(f"logs and data are in {verification.directory}")
    return report
