"""What is said of a run that failed."""

from takeback.model.plan import Outcome, TargetOutcome, UndoResult
from takeback.runs.end import note


def stays(path: str, why: str) -> TargetOutcome:
    return TargetOutcome(f"file://{path}", Outcome.CONFLICT, why)


def test_what_stays_for_the_same_reason_is_told_once() -> None:
    targets = (*(stays(f"/t/{n}", "was changed since") for n in range(40)), stays("/t/b", "is gone"))

    told = note("work", UndoResult("partly", (), (*targets, *targets)))

    assert told == (
        "takeback: run 'work' failed and took back 0 of its effects; 41 targets stay: /t/0 was changed since "
        "(so /t/1, /t/2, /t/3, /t/4 and 35 more); /t/b is gone"
    )


def test_many_reasons_are_cut_short_and_one_target_is_one() -> None:
    many = UndoResult("partly", (), tuple(stays(f"/t/{n}", f"is odd: {n}") for n in range(9)))
    assert note("work", many).endswith("/t/4 is odd: 4; …")
    assert note("work", UndoResult("partly", (), (stays("/t/a", "is odd"),))).endswith(
        "1 target stays: /t/a is odd"
    )
    assert note("work", UndoResult("done", (), ())).endswith("took back 0 of its effects.")
