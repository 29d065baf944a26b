"""Which characters the texts of messages may have: looked at in all messages of a batch at once.

Part of a type, as msgspec has it, a pattern costs as much as all else of a message.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Meta, inspect

END: Final = r"$(?!\n)"
"""Of a pattern: Python's `$` alone lets the end of a line come after it. That of JSON Schema does
not, and there it is all (`shared.contracts.asyncapi`)."""

_KEY: Final = "characters"

Texts = Callable[[Iterable[Any]], Iterator[Any]]
"""From messages to the values of a field; None and the like among them."""


class _Characters(NamedTuple):
    """Which a text may have."""

    allowed: "re.Pattern[str]"
    """Of a whole text."""
    said: str
    """For whoever sent others."""


def text_of(most: int, characters: str, said: str) -> Meta:
    """What a text may be: not empty, no longer than this, of certain characters alone.

    Args:
        most: characters.
        characters: a class of a regular expression.
        said: what it has, in words that go on from "with".
    """
    pattern = f"^{characters}*{END}"
    return Meta(
        min_length=1,
        max_length=most,
        extra={_KEY: _Characters(re.compile(f"{characters}*"), said)},
        extra_json_schema={"pattern": pattern},
    )


class _Field(NamedTuple):
    """Texts of a kind of messages that may have but certain characters."""

    path: str
    """As JSON has it."""
    texts: Texts
    characters: _Characters


def are_allowed(kind: type[msgspec.Struct], messages: Sequence[Any]) -> bool:
    """Whether all texts of messages of a kind have but the characters that they may have."""
    return all(_is_allowed(field, messages) for field in _fields_of(kind))


def why_not_allowed(kind: type[msgspec.Struct], message: Any) -> str | None:
    """Which text of a message has characters that it may not have; None: none has."""
    for field in _fields_of(kind):
        if not _is_allowed(field, [message]):
            return f"Expected `str` with {field.characters.said} - at `$.{field.path}`"
    return None


def _is_allowed(field: _Field, messages: Iterable[Any]) -> bool:
    # Of characters of a class, what is put together is, if each part is.
    text = "".join(filter(None, field.texts(messages)))
    return field.characters.allowed.fullmatch(text) is not None


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    return tuple(_fields_in(inspect.type_info(kind), "", iter))


def _fields_in(kind: inspect.Type, path: str, texts: Texts) -> Iterator[_Field]:
    if isinstance(kind, inspect.Metadata):
        characters = (kind.extra or {}).get(_KEY)
        if characters is not None:
            yield _Field(path, texts, characters)
        yield from _fields_in(kind.type, path, texts)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _fields_in(one, path, texts)
    elif isinstance(kind, inspect.ListType):
        yield from _fields_in(kind.item_type, f"{path}[...]", partial(_each, texts))
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            inner = f"{path}.{field.encode_name}" if path else field.encode_name
            yield from _fields_in(field.type, inner, partial(_named, texts, attrgetter(field.name)))


def _each(texts: Texts, messages: Iterable[Any]) -> Iterator[Any]:
    return chain.from_iterable(filter(None, texts(messages)))


def _named(texts: Texts, get: Callable[[Any], Any], messages: Iterable[Any]) -> Iterator[Any]:
    return map(get, filter(None, texts(messages)))
