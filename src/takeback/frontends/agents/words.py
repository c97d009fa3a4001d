"""What the model and the person read of what takeback did."""

from collections.abc import Sequence

from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import doubt_of
from takeback.model.resource import display
from takeback.storage.protocols import Journal, Query

_LISTED = 5


def about_effect(effect: Effect | None) -> str:
    """Only what is out of the ordinary: most calls need no word."""
    if effect is None:
        return ""
    said: list[str] = []
    if outside := effect.change.args.get("outside", ()):
        verb = "is" if len(outside) == 1 else "are"
        said.append(
            f"takeback: {_listed(outside)} {verb} outside of the project, so what this call changed there cannot be "
            "taken back."
        )
    if effect.remedy and effect.remedy.residue:
        said.append(f"takeback: undo of {short(effect.id)} is not exact: {effect.remedy.residue}.")
    return "\n".join(said)


def taken_back(journal: Journal, undos: Sequence[Effect], run: str) -> str:
    """Files and conversation no longer agree: which of this run's changes stand no more, or stand again."""
    ids = tuple(one.undoes for one in undos)
    known = {one.id: one for one in journal.effects(Query(ids=ids))} if ids else {}
    gone = [known[one.undoes] for one in undos if one.undoes in known and known[one.undoes].run == run]
    gone = [one for one in gone if not one.is_undo]
    if not gone:
        return ""
    paths = dict.fromkeys(display(target.resource) for one in gone for target in one.targets)
    names = "; ".join(f"{short(one.id)} ({one.change.summary})" for one in gone[:_LISTED])
    more = f" and {len(gone) - _LISTED} more" if len(gone) > _LISTED else ""
    return (
        f"takeback: some of your earlier changes do not stand any more, so files are not as you left them: {names}"
        f"{more}. Concerned: {_listed(list(paths))}. Read a file again before you edit it."
    )


def doubtful(effect: Effect) -> list[str]:
    """Paths that someone else may have changed at the same time."""
    return [display(one.resource) for one in effect.targets if doubt_of(one)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
