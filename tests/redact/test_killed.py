"""A redaction that is killed is either not begun, or finished by the next recovery."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.model.record import STORE, Kind
from takeback.testing.crash import Boundaries, killed_everywhere, wrap_system_calls
from tests.redact.shapes import SECRET, SHAPES
from tests.redact.test_redact import files_with, held_anywhere


def filled(place: Path) -> Path:
    (place / "world").mkdir()
    with takeback.open(place / "template") as tb, tb.run(f"with {SECRET}") as run:
        for name in (
            "in a pack",
            "in a file with a hole",
            "in_a_chain_of_differences",
            "in_the_name_of_a_project",
        ):
            SHAPES[name](tb, run, place / "world")
        run.write(place / "world" / "kept", "kept as it is")
    return place / "template"


@pytest.mark.parametrize("first", range(1, 24))
@pytest.mark.sampled(23)
def test_killed_at_any_boundary_it_is_not_begun_or_finished(tmp_path: Path, first: int) -> None:
    template, store = filled(tmp_path), tmp_path / "store"

    def prepare() -> None:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        shutil.copytree(template, store)

    def action(boundaries: Boundaries) -> None:
        tb = takeback.open(store)
        connection: Any = tb.store.database._connection  # pyright: ignore

        def said(sql: str) -> None:
            if _writes(sql):
                boundaries.pass_one(sql)

        connection.set_trace_callback(said)
        wrap_system_calls(boundaries)
        tb.redact(match=SECRET)

    def check(at: int) -> None:
        with takeback.open(store) as tb:
            tb.recover()
            begun = list(tb.store.journal.records(run=STORE, kinds=(Kind.REDACT,)))
            assert tb.store.redacting() == ()
            assert tb.verify(read_data=True).findings == (), at
            assert held_anywhere(tb, SECRET) is not bool(begun), at
            kept = tb.effects()[-1]
            assert not kept.redacted and not kept.forgotten
        if begun:
            assert files_with(store, SECRET) == [], at
        assert begun or at

    assert killed_everywhere(prepare, action, check, first=first, step=23) > 3


def _writes(sql: str) -> bool:
    return not sql.startswith(("SELECT", "--")) and "busy_timeout" not in sql
