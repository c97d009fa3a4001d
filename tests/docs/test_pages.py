"""What the documents say about the code is what the code says."""

import json
import re
import signal
import tomllib
from enum import EnumType
from pathlib import Path

import pytest

import takeback
from takeback.audit.views import effect_json
from takeback.model.plan import Outcome, Standing
from takeback.model.record import Kind
from takeback.model.run import OnDeath
from takeback.model.settings import PRESETS, Settings, settings_from
from tests.docs.generate import MANUAL, PARTS, SOURCE, manual
from tests.docs.pages import DOCS, ROOT, anchors, blocks, generated, links, name_of, pages, table

GENERATED = [(page, name, text) for page in pages() for name, text in generated(page)]


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for _, name, text in GENERATED],
    ids=[f"{name_of(p)}:{n}" for p, n, _ in GENERATED],
)
def test_a_part_that_is_printed_from_the_code_is_up_to_date(name: str, text: str) -> None:
    assert text == PARTS[name](), "Run `python -m tests.docs.generate`."


def test_everything_that_can_be_printed_from_the_code_is_on_some_page() -> None:
    assert {name for _, name, _ in GENERATED} == set(PARTS)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        waiting += [
            (page.parent / file).resolve()
            for link in links(page)
            if (file := link.partition("#")[0]) and ":" not in file
        ]
    assert {name_of(page) for page in pages()} - {name_of(page) for page in seen} == set()


def test_the_settings_page_has_every_setting_and_its_default() -> None:
    written = {
        name: int(default.replace(",", ""))
        for name, default, *_ in table(DOCS / "reference/settings.md", "All settings")
    }
    assert written == Settings()._asdict()


def test_json_examples_are_json_and_the_settings_among_them_are_accepted() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language == "json":
                data = json.loads(block.text)
                if page.name == "settings.md":
                    settings_from(data, "the page")


def test_the_settings_page_names_every_environment_variable() -> None:
    named = {row[0] for row in table(DOCS / "reference/settings.md", "Environment variables")}
    read = re.compile(r"environ(?:\.get\(|\[)\s*\"([A-Z_]+)\"")
    used = {
        name
        for file in SOURCE.rglob("*.py")
        if "testing" not in file.parts
        for name in read.findall(file.read_text())
    }
    assert used - {"TERM"} <= named
    assert {name for name in named if name.startswith("TAKEBACK_")} <= used


def test_the_json_page_lists_every_field_of_an_effect(tmp_path: Path, store: Path) -> None:
    with takeback.open(store) as tb, tb.run("one") as run:
        effect = run.write(tmp_path / "file", "text")
    assert effect
    listed = [
        name.strip() for row in table(DOCS / "reference/json.md", "An effect") for name in row[0].split(",")
    ]
    assert listed == list(effect_json(effect))


@pytest.mark.parametrize(
    ("page", "heading", "values"),
    [
        ("internals/recovery.md", "Standing", Standing),
        ("internals/recovery.md", "Order", OnDeath),
        ("internals/format.md", "Records", Kind),
        ("reference/json.md", "Outcome of a target", Outcome),
        ("reference/json.md", "State of an effect", takeback.State),
    ],
)
def test_a_table_of_values_lists_each_of_them(page: str, heading: str, values: EnumType) -> None:
    assert [row[0] for row in table(DOCS / page, heading)] == [str(value) for value in values]


def test_every_error_is_raised_by_something() -> None:
    elsewhere = "".join(
        file.read_text() for file in SOURCE.rglob("*.py") if file.name not in ("errors.py", "__init__.py")
    )
    leaves = {name for name in takeback.__all__ if _is_leaf(name)}
    assert {name for name in leaves if not re.search(rf"\b{name}\b", elsewhere)} == set()


def _is_leaf(name: str) -> bool:
    found = getattr(takeback, name)
    return (
        isinstance(found, type) and issubclass(found, takeback.TakebackError) and not found.__subclasses__()
    )


def test_exit_codes_are_those_of_the_error_families() -> None:
    families = {kind.exit_code for kind in takeback.TakebackError.__subclasses__()}
    signals = {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)}
    written = {int(row[0]) for row in table(DOCS / "reference/cli.md", "Exit codes")}
    assert {0} | families | signals == written


def test_the_architecture_page_lists_every_room() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    rooms |= {"api", "errors"}
    assert {row[0] for row in table(DOCS / "internals/architecture.md", "Rooms")} == rooms


def test_the_format_page_lists_every_file_that_a_store_has(store: Path, tmp_path: Path) -> None:
    listed = {
        name.strip() for row in table(DOCS / "internals/format.md", "Files") for name in row[0].split(",")
    }
    (tmp_path / "two-names").write_bytes(b"x")
    (tmp_path / "second").hardlink_to(tmp_path / "two-names")
    with takeback.open(store) as tb:
        with tb.run("fill it") as run:
            run.write(tmp_path / "large", bytes(range(256)) * 400)
            run.write(tmp_path / "large", b"\0")
            run.delete(tmp_path / "two-names")
        found = {path.relative_to(store).as_posix() for path in store.rglob("*")}
    known = {name for name in found if name in listed or f"{name}/" in listed}
    known |= {name for name in found if name.startswith(("blobs", "held/"))}
    assert found - known == set()


def test_decisions_are_numbered_without_a_gap_and_all_listed() -> None:
    files = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    listed = [link for link in links(DOCS / "decisions/README.md") if link[0].isdigit()]
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    assert listed == files


def test_the_readme_says_which_version_of_python_and_which_licence() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    wanted = re.search(r'requires-python = ">=([\d.]+)"', project)
    readme = (ROOT / "README.md").read_text()
    assert wanted
    assert f"Python {wanted[1]}" in readme
    assert "Apache-2.0" in readme


def test_fresh_eyes_22_the_manual_pages_are_up_to_date_and_go_into_the_wheel() -> None:
    """`make docs-generate` writes them; `make wheel-smoke` finds them installed."""
    assert {one.name: one.read_text() for one in MANUAL.iterdir()} == manual()
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["shared-data"] == {"docs/man/share": "share"}
    assert MANUAL.relative_to(ROOT / "docs" / "man").as_posix() == "share/man/man1"


def test_the_settings_page_writes_the_preset_as_numbers_for_postgres() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    numbers = ", ".join(f"('{name}', {value})" for name, value in PRESETS["small"].items())
    assert f"INSERT INTO takeback_store.settings VALUES {numbers};" in page
