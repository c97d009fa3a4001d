"""`diff`: what an effect changed, before to after."""

from typing import TYPE_CHECKING, Any

from takeback.api import opened_of
from takeback.audit.diff import DiffPart
from takeback.frontends.cli.command import SECRETS, Asked, Command, Does, positional
from takeback.frontends.cli.output.differences import parts_of, say_parts
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import Effect, State

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.run import RunInfo


_ARGUMENTS = (
    positional(
        "id", "ID", "an effect, or a run by id or name; none: the newest effect", nargs="?", default="@"
    ),
    positional("path", "PATH", "only this path, or this table of a database", nargs="?"),
    SECRETS,
)


def _diff(asked: Asked) -> int:
    from takeback.runs.scope import resource_of

    options, screen = asked.options, asked.screen
    with existing(asked) as tb:
        only = resource_of(options.path) if options.path else ""
        if run := opened_of(tb).run_meant(options.id):
            id, parts, of = run.id, _parts_of_run(tb, run, only), None
        else:
            effect = tb.effect(options.id)
            if "database" in effect.change.args:
                return _diff_rows(asked, tb, effect)
            id, parts = effect.id, parts_of(tb, effect, only)
            of = None if only else effect
        give(asked, tb, {"id": id, "parts": [_part_json(part) for part in parts]})
        say_parts(screen, parts, of)
    return 0


def _part_json(part: DiffPart) -> dict[str, Any]:
    lines = (f"{line.decode('utf-8', 'backslashreplace')}\n" for line in part.lines)
    return {"resource": part.resource, "words": list(part.words), "diff": "".join(lines)}


def _parts_of_run(tb: "Takeback", run: "RunInfo", only: str) -> tuple[DiffPart, ...]:
    """Everything that it changed and that still holds."""
    from takeback.audit.diff import difference_of_all
    from takeback.audit.rows import as_parts, changed_rows
    from takeback.engine.portion import standing

    done = [one for one in tb.effects(run=run, state=State.DONE) if not one.is_undo]
    done.sort(key=lambda one: one.order)
    done = [standing(opened_of(tb).parts, one) for one in done]
    rows = [one for one in done if "database" in one.change.args] if not only else []
    of_rows = (part for one in rows for part in as_parts(one, changed_rows(opened_of(tb).parts, one)))
    return (*difference_of_all(tb.store.blobs, [one for one in done if one not in rows], only), *of_rows)


def _diff_rows(asked: Asked, tb: "Takeback", effect: Effect) -> int:
    from takeback.audit.rows import as_parts, changed_rows, no_way_back, receipt_of, row_json

    changed = changed_rows(opened_of(tb).parts, effect, asked.options.path or "")
    rows = [row_json(row) for row in changed.rows]
    give(
        asked,
        tb,
        {
            "id": effect.id,
            "rows": rows,
            "more": changed.more,
            "schema": receipt_of(effect).get("schema", []),
            "no_way_back": list(no_way_back(effect)),
        },
    )
    say_parts(asked.screen, as_parts(effect, changed))
    return 0


COMMAND = Command(_diff, _ARGUMENTS, does=Does.LOOKS, long=True)
