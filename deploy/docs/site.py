"""The hook by which MkDocs gets the pages that do not stand under `docs`.

READMEs beside the code become pages of the site, and pages that say what the code says itself
(contract, settings, commands, metrics) are made from it. Links are written as they hold in the
repository, so that its files can be read there too; here they are turned to the site's own.
"""

import logging
from importlib import import_module
from posixpath import dirname, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from deploy.docs.links import Link, faults, links, target_path
from deploy.docs.places import FOLDED, GENERATED, PICTURES, TOP, place_of, source_of

log = logging.getLogger("mkdocs.hooks.freshet")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and pictures from elsewhere."""
    for source, place in FOLDED.items():
        files.append(File.generated(config, place, abs_src_path=str(TOP / source)))
    for folder in PICTURES:
        for picture in sorted((TOP / folder).iterdir()):
            drawn = place_of(f"{folder}/{picture.name}")
            if drawn is not None:
                files.append(File.generated(config, drawn, abs_src_path=str(picture)))
    for place, module in GENERATED.items():
        made = import_module(f"deploy.docs.{module}").page()
        files.append(File.generated(config, place, content=made))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - the hook's signature
    """Turn a page's links into the site's; a link that leads nowhere fails a strict build."""
    source = source_of(page.file.src_uri)
    for fault in faults(source, markdown):
        log.warning(fault)
    return turned(markdown, source, page.file.src_uri)


def turned(text: str, source: str, page: str) -> str:
    """The text of a page with the site's links.

    A link to a file that the site does not have becomes its text, and the file's name as code.

    Args:
        text: as it is in the repository.
        source: the file that it is from.
        page: its page of the site.
    """
    parts, end = [], 0
    for link in links(text):
        parts += [text[end : link.start], _turned_link(link, source, page)]
        end = link.end
    return "".join([*parts, text[end:]])


def _turned_link(link: Link, source: str, page: str) -> str:
    anchor = link.target.partition("#")[1:]
    path = target_path(source, link.target)
    mark = "!" if link.is_image else ""
    if link.is_elsewhere or path == source:
        return f"{mark}[{link.text}]({link.target})"
    place = place_of(path)
    if place is not None:
        return f"{mark}[{link.text}]({relpath(place, dirname(page) or '.')}{''.join(anchor)})"
    return link.text if path in link.text.strip("`/") else f"{link.text} (`{path}`)"
