"""`freshet subscriptions add|list|remove`."""

import secrets
from typing import Any

import click

from services.cli.bandwidths import when
from services.cli.errors import UserError
from shared.terminal.output import show, show_rows

_ID_BYTES = 16
_SECRET_BYTES = 32


@click.group()
def command() -> None:
    """Topics whose WebSub hubs tell the receiver what is new.

    A topic is a feed or a page that names its hub. The receiver (`freshet worker receiver`, with
    FRESHET_RECEIVER_URL) subscribes within seconds, and renews each subscription before it ends.

    \b
    Examples:
      freshet subscriptions add https://blog.example/feed
      freshet subscriptions add https://blog.example/feed --hub https://hub.example/
      freshet subscriptions list --json
      freshet subscriptions remove https://blog.example/feed
    """


@command.command("add")
@click.argument("topic")
@click.option("--hub", help="Ask this one, instead of what the topic names.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def add(topic: str, hub: str | None, as_json: bool) -> None:
    """Subscribe to TOPIC, the URL of a feed or a page."""
    from services.cli.written_urls import page_of  # noqa: PLC0415
    from shared.store.subscriptions import add_subscription  # noqa: PLC0415 - only what is needed

    name, own_hub = page_of(topic).url, None if hub is None else page_of(hub).url
    with _connection() as connection:
        added = add_subscription(
            connection,
            secrets.token_hex(_ID_BYTES),
            name,
            own_hub,
            secrets.token_urlsafe(_SECRET_BYTES),
        )
    show({"topic": name, "added": added}, as_json=as_json)


@command.command("remove")
@click.argument("topic")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def remove(topic: str, as_json: bool) -> None:
    """End the subscription to TOPIC; its hub is told, and what it still sends is not taken."""
    from services.cli.written_urls import page_of  # noqa: PLC0415
    from shared.store.subscriptions import unwant_subscription  # noqa: PLC0415

    name = page_of(topic).url
    with _connection() as connection:
        if not unwant_subscription(connection, name):
            raise UserError(f"{name} is not subscribed to: `freshet subscriptions list` shows all")
    show({"topic": name, "removed": True}, as_json=as_json)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(as_json: bool) -> None:
    """Show all subscriptions: their states, hubs, the ends of their leases, and what is amiss."""
    from shared.store.subscriptions import list_subscriptions  # noqa: PLC0415

    with _connection() as connection:
        rows = [_row(found, as_json=as_json) for found in list_subscriptions(connection)]
    show_rows(rows, as_json=as_json, empty="there are no subscriptions")


def _row(found: Any, *, as_json: bool) -> dict[str, Any]:
    lease_ends = found.lease_ends if found.lease_ends > 0 else None  # the hub has granted none
    return {
        "topic": found.topic,
        "state": found.state,
        "hub": found.hub or found.wanted_hub or "",
        "lease_ends": lease_ends if as_json else when(lease_ends),
        "reason": found.reason,
    }


def _connection() -> Any:
    from services.cli.databases import home_url  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.connection import connect  # noqa: PLC0415

    return connect(home_url(load_settings()), "cli", autocommit=True)
