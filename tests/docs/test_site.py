"""The index of the documents and the site that `make docs` builds from them: every page is in both."""

import tomllib
from typing import Any

from tests.docs.pages import DOCS, ROOT
from tests.docs.picture import PICTURE, drawn, said, session
from tests.docs.site import CONFIGURATION, index, with_navigation


def test_the_index_lists_every_page_but_single_decisions() -> None:
    listed = [page for entries in index().values() for _, page in entries]
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    decisions = {page for page in there if page.startswith("decisions/0")}
    assert sorted(listed) == sorted(there - decisions - {"README.md"})


def test_the_navigation_of_the_site_is_the_index() -> None:
    text = CONFIGURATION.read_text()
    assert text == with_navigation(text), "Run `make docs-generate`."
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert set(_pages(tomllib.loads(text)["project"]["nav"])) == there


def _pages(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    inner = (entry for part in entries for entry in part.values())
    return [page for entry in inner for page in _pages(entry)]


def test_the_site_asks_nothing_of_the_network_and_is_no_part_of_the_repository() -> None:
    project = tomllib.loads(CONFIGURATION.read_text())["project"]
    assert project["theme"]["font"] is False
    assert f"/{project['site_dir']}/" in (ROOT / ".gitignore").read_text()


def test_the_picture_of_the_readme_shows_what_the_commands_print() -> None:
    assert said(PICTURE.read_text()) == said(drawn(session())), "Run `make docs-generate`."
