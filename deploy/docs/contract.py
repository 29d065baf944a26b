"""The page of the contract: topics and messages, as the AsyncAPI document has them."""

from typing import Any

from deploy.docs.tables import table
from shared.contracts.asyncapi import document

_MS_PER_DAY = 86_400_000
_MS_PER_MINUTE = 60_000

_HEAD = """# Topics and messages

{description}

This page is made from the AsyncAPI document that `freshet contract` prints; feed that to a
generator to have the types in your own language. Version of the contract: {version}. On a cluster
that is shared, every topic's name begins with `FRESHET_TOPIC_PREFIX`. "Or null" means that the
field may be left out.

## Topics

{topics}
## Messages

{messages}"""


def page() -> str:
    """The page, in Markdown."""
    return rendered(document())


def rendered(contract: dict[str, Any]) -> str:
    """The page of an AsyncAPI document."""
    kinds = contract["components"]["messages"]
    rows = [
        (
            f"[`{name}`](#{_kind_name(contract, name).lower()})",
            channel["description"].partition(";")[0],
            _key(channel),
            _kept(channel),
        )
        for name, channel in contract["channels"].items()
    ]
    schemas = contract["components"]["schemas"]
    parts = [_dead_letter(kind) for kind in kinds.values() if not kind["payload"]]
    return _HEAD.format(
        description=contract["info"]["description"],
        version=contract["info"]["version"],
        topics=table(("topic", "who writes → who reads", "key; partitions", "kept"), rows),
        messages="\n".join([*(_message(n, s) for n, s in _by_topic(contract, schemas)), *parts]),
    )


def _kind_name(contract: dict[str, Any], topic: str) -> str:
    return str(contract["components"]["messages"][topic]["name"])


def _by_topic(
    contract: dict[str, Any], schemas: dict[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """The schemas: those of topics in the topics' order, then those that are parts of others."""
    ordered = [_kind_name(contract, topic) for topic in contract["channels"]]
    names = [name for name in ordered if name in schemas]
    return [(name, schemas[name]) for name in [*names, *(n for n in schemas if n not in names)]]


def _key(channel: dict[str, Any]) -> str:
    [_, key, partitions] = channel["description"].rstrip(".").split("; ")
    return f"{key.removeprefix('key: ')}; {partitions}"


def _kept(channel: dict[str, Any]) -> str:
    configuration = channel["bindings"]["kafka"]["topicConfiguration"]
    if "compact" in configuration["cleanup.policy"]:
        return "the last message of each key, for ever"
    milliseconds = configuration["retention.ms"]
    if milliseconds < _MS_PER_DAY:
        return f"{milliseconds / _MS_PER_MINUTE:g} minutes"
    days = milliseconds / _MS_PER_DAY
    return f"{days:g} day{'s' if days > 1 else ''}"


def _message(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"`{field}`",
            type_of(kind),
            "yes" if field in required else "",
            kind.get("description", ""),
        )
        for field, kind in schema["properties"].items()
    ]
    fields = table(("field", "type", "required", "meaning"), rows)
    return f"### {name}\n\n{schema['description']}\n\n{fields}"


def _dead_letter(kind: dict[str, Any]) -> str:
    return f"### {kind['name']}\n\n`dead-letters`: {kind['description']}\n"


def type_of(schema: dict[str, Any]) -> str:
    """A field's type in a few words, with its bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_of(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return f"list of {type_of(schema['items'])}{_counted(schema)}"
    return f"{schema['type']}{_bounds(schema)}"


def _short(number: float) -> str:
    return f"{number:.0f}" if number == int(number) and abs(number) < 1e6 else f"{number:.3g}"


def _counted(schema: dict[str, Any]) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least == most:
        return "" if most is None else f", {most} of them"
    return f", at most {most}" if least is None else f", {least} to {most}"


def _bounds(schema: dict[str, Any]) -> str:
    words = [
        f"{sign} {_short(schema[bound])}"
        for bound, sign in (("exclusiveMinimum", ">"), ("minimum", "≥"))
        if bound in schema
    ]
    words += [
        f"{sign} {_short(schema[bound])}"
        for bound, sign in (("exclusiveMaximum", "<"), ("maximum", "≤"))
        if bound in schema
    ]
    if "maxLength" in schema:
        words.append(f"{schema.get('minLength', 0)} to {schema['maxLength']} characters")
    return f", {', '.join(words)}" if words else ""
