"""One early edit comes out alone: undo with merge, under later effects of anybody on the same file."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import takeback
from takeback.api import opened_of
from tests.behaviour.conftest import Scene

LINES = [f"line {n}\n" for n in range(1, 21)]
TEXT = "".join(LINES)


def edited(text: str, number: int, new: str = "") -> str:
    return text.replace(f"line {number}\n", new or f"edit of {number}\n")


def layered(scene: Scene, *numbers: int, name: str = "a.txt", start: str = TEXT) -> list[takeback.Effect]:
    """Edits of these lines, one on top of the other."""
    scene.put(name, start)
    effects: list[takeback.Effect] = []
    for number in numbers:
        effects.append(scene.write(name, edited(scene.text(name) or "", number), agent=f"agent {number}"))
    return effects


def test_finding_16_an_edit_under_a_later_effect_comes_out_alone(scene: Scene) -> None:
    first, _ = layered(scene, 3, 17)

    result = scene.tb.undo(first, on_conflict="merge")

    assert scene.text("a.txt") == edited(TEXT, 17)
    assert result.outcome == "done"
    assert [(str(one.outcome), one.exact) for one in result.targets] == [("undone", False)]
    assert scene.state(first) == "undone"


def test_finding_16_a_merged_undo_is_not_exact_and_says_so(scene: Scene) -> None:
    first, _ = layered(scene, 3, 17)

    (undo,) = scene.tb.undo(first, on_conflict="merge").undo

    assert undo.remedy is not None
    assert not undo.remedy.exact
    assert "merged" in undo.remedy.residue
    redo = scene.tb.redo(first).undo[0]
    assert redo.remedy is not None
    assert redo.remedy.exact


def test_finding_16_later_effects_are_taken_back_plainly_afterwards(scene: Scene) -> None:
    first, second, third = layered(scene, 3, 10, 17)
    scene.tb.undo(first, on_conflict="merge")

    scene.tb.undo(third)
    assert scene.text("a.txt") == edited(TEXT, 10)
    scene.tb.undo(second)
    assert scene.text("a.txt") == TEXT
    scene.tb.redo(first)
    assert scene.text("a.txt") == edited(TEXT, 3)


def test_finding_16_any_other_difference_is_a_conflict_as_before(scene: Scene) -> None:
    first, second = layered(scene, 3, 17)
    scene.tb.undo(first, on_conflict="merge")
    scene.put("a.txt", edited(scene.text("a.txt") or "", 10, "a person's\n"))
    seen = scene.text("a.txt")

    with pytest.raises(takeback.Conflict):
        scene.tb.undo(second)

    assert scene.text("a.txt") == seen
    scene.tb.undo(second, on_conflict="merge")
    assert scene.text("a.txt") == edited(TEXT, 10, "a person's\n")


def test_finding_16_a_cascade_goes_back_over_a_merge(scene: Scene) -> None:
    first, second = layered(scene, 3, 17)
    scene.tb.undo(first, on_conflict="merge")
    scene.write("a.txt", edited(scene.text("a.txt") or "", 10))

    scene.tb.undo(second, cascade=True)

    assert scene.text("a.txt") == TEXT


def test_finding_16_the_same_lines_changed_later_are_refused_by_region(scene: Scene) -> None:
    scene.put("a.txt", TEXT)
    first = scene.write("a.txt", edited(TEXT, 3))
    scene.write("a.txt", edited(TEXT, 3, "other\n"))

    with pytest.raises(takeback.Conflict, match="line 3 changed since"):
        scene.tb.undo(first, on_conflict="merge")

    assert scene.text("a.txt") == edited(TEXT, 3, "other\n")


def test_finding_16_what_a_later_effect_wrote_again_is_not_taken_for_the_edit(scene: Scene) -> None:
    scene.put("a.txt", TEXT)
    first = scene.write("a.txt", edited(TEXT, 3, "x\n"))
    scene.write("a.txt", edited(TEXT, 3, "y\n"))
    scene.write("a.txt", edited(TEXT, 3, "x\n"))

    with pytest.raises(takeback.Conflict, match="later"):
        scene.tb.undo(first, on_conflict="merge")

    assert scene.text("a.txt") == edited(TEXT, 3, "x\n")


def test_finding_16_what_needs_the_edit_still_blocks_it(scene: Scene) -> None:
    (first,) = layered(scene, 3)
    second = scene.write("b", "built on it", needs=[first.id])

    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(first, on_conflict="merge")

    assert refused.value.blockers == (second.id,)


def test_finding_16_a_blocked_undo_says_whether_a_merge_is_clean(scene: Scene) -> None:
    first, second, _ = layered(scene, 3, 10, 17)
    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(first)
    assert "the merge is clean" in (refused.value.hint or "")

    scene.write("a.txt", (scene.text("a.txt") or "").replace("edit of 10\n", "again\n"))
    with pytest.raises(takeback.Blocked) as refused:
        scene.tb.undo(second)
    assert "--merge does not work" in (refused.value.hint or "")
    assert "line 10" in (refused.value.hint or "")


def test_finding_16_a_dry_run_shows_what_the_merge_changes(scene: Scene) -> None:
    first, _ = layered(scene, 3, 17)
    seen = scene.text("a.txt")

    result = scene.tb.undo(first, on_conflict="merge", dry_run=True)

    assert "-edit of 3\n+line 3\n" in result.targets[0].diff
    assert "17" not in result.targets[0].diff
    assert scene.text("a.txt") == seen


def test_finding_r7_merge_and_skip_go_together(scene: Scene) -> None:
    for name in ("clean", "stuck"):
        scene.put(name, TEXT)
    with scene.tb.run("both") as run:
        effect = run.write_all({scene.world / name: edited(TEXT, 3) for name in ("clean", "stuck")})
    assert effect is not None
    scene.write("clean", edited(edited(TEXT, 3), 17))
    scene.write("stuck", edited(TEXT, 3, "other\n"))

    with pytest.raises(takeback.Conflict):
        scene.tb.undo(effect, on_conflict="merge")
    result = scene.tb.undo(effect, on_conflict="merge-or-skip")

    assert result.outcome == "partial"
    assert scene.text("clean") == edited(TEXT, 17)
    assert scene.text("stuck") == edited(TEXT, 3, "other\n")
    assert {os.path.basename(one.resource): str(one.outcome) for one in result.targets} == {
        "clean": "undone",
        "stuck": "conflict",
    }


def test_thirty_nine_exact_paths_and_a_merged_one_are_one_undo(scene: Scene) -> None:
    for n in range(40):
        scene.put(f"f{n}", TEXT)
    with scene.tb.run("many") as run, run.watch(scene.world.root) as watched:
        for n in range(40):
            scene.put(f"f{n}", edited(TEXT, 3))
    assert watched.effect is not None
    scene.write("f7", edited(edited(TEXT, 3), 17))

    result = scene.tb.undo(watched.effect, on_conflict="merge")

    assert result.outcome == "done"
    assert [os.path.basename(one.resource) for one in result.targets if not one.exact] == ["f7"]
    assert len(result.undo) == 1
    assert {scene.text(f"f{n}") for n in range(40) if n != 7} == {TEXT}
    assert scene.text("f7") == edited(TEXT, 17)
    scene.tb.redo(watched.effect)
    assert scene.text("f7") == edited(edited(TEXT, 3), 17)
    assert scene.text("f8") == edited(TEXT, 3)


def test_entries_of_a_list_are_taken_out_by_value(scene: Scene) -> None:
    scene.put("c.json", json.dumps({"allow": ["a", "b"], "x": 1}, indent=2))
    effects: list[takeback.Effect] = []
    for allow in (["a", "b", "c"], ["a", "b", "c", "d"]):
        with scene.tb.run("allow") as run:
            effect = run.edit_config(scene.world / "c.json", {"/allow": allow})
        assert effect is not None
        effects.append(effect)

    result = scene.tb.undo(effects[0], on_conflict="merge")
    assert json.loads(scene.text("c.json") or "") == {"allow": ["a", "b", "d"], "x": 1}
    assert not result.targets[0].exact
    scene.tb.undo(effects[1])
    assert json.loads(scene.text("c.json") or "") == {"allow": ["a", "b"], "x": 1}
    scene.tb.redo(effects[0])
    assert json.loads(scene.text("c.json") or "") == {"allow": ["a", "b", "c"], "x": 1}


def test_mode_owner_and_line_ends_stay(scene: Scene) -> None:
    start = TEXT.replace("\n", "\r\n").removesuffix("\r\n")
    scene.put("a.txt", start)
    first = scene.write("a.txt", start.replace("line 3\r", "x\r"))
    scene.write("a.txt", start.replace("line 3\r", "x\r").replace("line 17\r", "y\r"), mode=0o750)

    scene.tb.undo(first, on_conflict="merge")

    assert (scene.world / "a.txt").read_bytes().decode() == start.replace("line 17\r", "y\r")
    assert (scene.world / "a.txt").stat().st_mode & 0o777 == 0o750


def test_a_file_with_two_names_is_not_torn_apart_by_a_merge(scene: Scene) -> None:
    first, _ = layered(scene, 3, 17)
    os.link(scene.world / "a.txt", scene.world / "other name")

    with pytest.raises(takeback.Conflict, match="2 names"):
        scene.tb.undo(first, on_conflict="merge")

    assert (scene.world / "a.txt").stat().st_nlink == 2


@pytest.mark.parametrize("kind", ["large", "binary"])
def test_what_is_large_or_binary_is_refused_soon(scene: Scene, kind: str) -> None:
    start = b"x" * 99 + b"\n" if kind == "large" else bytes(range(256))
    start = start * (1_000_000 if kind == "large" else 10)
    scene.put("f", start)
    with scene.tb.run("edits") as run:
        first = run.write(scene.world / "f", b"first\n" + start)
        run.write(scene.world / "f", b"first\n" + start + b"second\n")
    assert first is not None
    started = time.process_time()

    with pytest.raises(takeback.Conflict, match="too large to merge" if kind == "large" else "not text"):
        scene.tb.undo(first, on_conflict="merge")

    assert time.process_time() - started < 20
    assert (scene.world / "f").read_bytes() == b"first\n" + start + b"second\n"


@contextmanager
def edited_right_before_it_is_applied(scene: Scene, text: str) -> Iterator[None]:
    adapter: Any = opened_of(scene.tb).parts.adapters["file"]
    apply = adapter.apply

    def after_a_person(effect: takeback.Effect) -> Any:
        scene.put("a.txt", text)
        return apply(effect)

    adapter.apply = after_a_person
    try:
        yield
    finally:
        adapter.apply = apply


def test_an_edit_in_the_middle_of_a_merge_is_not_overwritten(scene: Scene) -> None:
    first, _ = layered(scene, 3, 17)

    with edited_right_before_it_is_applied(scene, "a person's\n"), pytest.raises(takeback.Drifted):
        scene.tb.undo(first, on_conflict="merge")

    assert scene.text("a.txt") == "a person's\n"
    assert scene.state(first) == "done"


@pytest.mark.parametrize("attempt", range(3))
def test_two_merges_at_once_lose_nothing(scene: Scene, store: object, attempt: int) -> None:
    effects = layered(scene, 3, 8, 13, 18)
    start = threading.Barrier(2)

    def take_out(effect: takeback.Effect) -> None:
        with takeback.open(str(store)) as tb:
            start.wait()
            try:
                tb.undo(effect.id, on_conflict="merge")
            except (takeback.Refused, takeback.Unavailable):
                return  # the other was faster, and it says so

    threads = [threading.Thread(target=take_out, args=(one,)) for one in effects[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    text = TEXT
    for number, effect in zip((3, 8, 13, 18), effects, strict=True):
        if scene.state(effect) == "done":
            text = edited(text, number)
    assert scene.text("a.txt") == text
    assert {scene.state(one) for one in effects[:2]} != {"done"}
