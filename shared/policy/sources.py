"""Which sources a module's compiled code can depend on, and a fingerprint of them all.

A kernel's machine code holds its callees, and the value of every constant that it names; both may
come from any file that its module imports, and those from others. So the imports are followed to
the end, as text: nothing is run, and an import inside a function counts too.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache
from os.path import basename, dirname, isfile, join, realpath, splitext
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
"""The folder of the top packages."""

_IMPORTS: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_COMMENT: Final = re.compile(r"#[^\n]*")


def fingerprint_of(source: Path) -> str:
    """A digest of a source and of all that it imports, at any depth, but for installed packages.

    Args:
        source: a file of Python.
    """
    digest = hashlib.sha256()
    for path in sorted(_reached_from(source)):
        digest.update(f"{basename(path)}\0{_digest_of(path)}\n".encode())
    return digest.hexdigest()


def sources_of(source: Path) -> set[Path]:
    """A source, and all those that it imports, at any depth, but for installed packages."""
    return {Path(path) for path in _reached_from(source)}


def _reached_from(source: Path) -> set[str]:
    # Names of files as text from here on: each process that has a kernel asks for thousands of them
    # as it starts, and a `Path` costs tens of times as much.
    found: set[str] = set()
    waiting = [realpath(source)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported_by(path)
    return found


@cache
def _digest_of(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@cache
def _imported_by(path: str) -> tuple[str, ...]:
    """The sources that one imports itself."""
    roots = tuple(dict.fromkeys((_import_root(dirname(path)), str(PROJECT))))
    files = {_file_of(name, roots) for name in set(_named_in(path))}
    return tuple(sorted(file for file in files if file is not None))


def _named_in(path: str) -> Iterator[str]:
    """Every module that a source may mean: of `from a import b`, both `a` and `a.b`."""
    for package, names, modules in _IMPORTS.findall(Path(path).read_text(encoding="utf-8")):
        if not package:
            yield from _words(modules)
            continue
        base = _absolute(package, path)
        yield base
        for name in _words(names):
            yield f"{base}.{name}"


def _words(listed: str) -> list[str]:
    """The names in a list as it stands behind `import`."""
    bare = _COMMENT.sub("", listed).strip().strip("()")
    return [part.split()[0] for part in bare.split(",") if part.strip()]


def _absolute(package: str, path: str) -> str:
    """The full name of a package that may be given relative to a source."""
    name = package.lstrip(".")
    dots = len(package) - len(name)
    if not dots:
        return name
    folder = Path(path).parents[dots - 1]
    parts = folder.relative_to(_import_root(dirname(path))).parts
    return ".".join((*parts, name)) if name else ".".join(parts)


@cache
def _import_root(folder: str) -> str:
    """The folder from which a folder's packages are imported: the next that is none itself."""
    return _import_root(dirname(folder)) if isfile(join(folder, "__init__.py")) else folder


@cache
def _file_of(module: str, roots: tuple[str, ...]) -> str | None:
    """The file of a module below one of some folders; None: it is not one of ours."""
    package, _, _ = module.partition(".")
    for root in roots:
        # Most that is named is of installed packages.
        if package not in _names_in(root):
            continue
        place = join(root, *module.split("."))
        for file in (f"{place}.py", join(place, "__init__.py")):
            if isfile(file):
                return realpath(file)
    return None


@cache
def _names_in(folder: str) -> frozenset[str]:
    """Of the packages and modules of a folder."""
    return frozenset(splitext(name)[0] for name in os.listdir(folder))
