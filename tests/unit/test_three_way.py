"""One change is taken out of a text or a document while later changes stay: cleanly or not at all."""

import json
import random
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from takeback.adapters.three_way import (
    KeyClash,
    Merged,
    hunks,
    lines_merged,
    merge,
    merged_document,
    unified,
)

lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"\n"]), max_size=8).map(b"".join)


def taken_out(before: bytes, after: bytes, now: bytes, name: bytes = b"f") -> Merged:
    """What the change from before to after did, taken out of now."""
    return merge(now, after, before, name)


class TestLines:
    @given(lines, lines)
    def test_what_nobody_touched_since_comes_back_whole(self, before: bytes, after: bytes) -> None:
        assert lines_merged(after, after, before) == before

    @given(lines, lines)
    def test_what_is_as_before_already_stays(self, before: bytes, after: bytes) -> None:
        assert lines_merged(before, after, before) in (before, None)

    @given(lines, lines, lines, lines)
    def test_a_change_far_away_stays(self, before: bytes, after: bytes, top: bytes, other_top: bytes) -> None:
        wall = b"".join(b"wall %d\n" % n for n in range(5))

        assert (
            lines_merged(other_top + wall + after, top + wall + after, top + wall + before)
            == other_top + wall + before
        )
        assert (
            lines_merged(after + wall + other_top, after + wall + top, before + wall + top)
            == before + wall + other_top
        )

    @given(lines, lines, lines)
    @example(b"b\na\na\n", b"b\na\n", b"a\nb\na\na\n")  # from above there is nothing left to do
    def test_it_is_the_same_from_below(self, before: bytes, after: bytes, now: bytes) -> None:
        def turned(text: bytes) -> bytes:
            return b"".join(text.splitlines(keepends=True)[::-1])

        merged = lines_merged(now, after, before)
        from_below = lines_merged(turned(now), turned(after), turned(before))
        assert (merged is None) == (from_below is None)
        assert merged is None or from_below is None or merged == turned(from_below)

    @pytest.mark.parametrize(
        ("before", "after", "now", "expected"),
        [
            (b"1\n2\n3\n", b"1\nx\n3\n", b"1\ny\n3\n", None),
            (b"1\n2\n3\n", b"1\n3\n", b"1\nnew\n3\n", None),  # before the new line, or after it?
            (b"1\n3\n", b"1\n2\n3\n", b"0\n1\n2\n3\n4\n", b"0\n1\n3\n4\n"),
            (b"1\n2\n3\n", b"3\n", b"3\n4\n", b"1\n2\n3\n4\n"),
            (b"1\n2\n3\n", b"1\n", b"0\n1\n", b"0\n1\n2\n3\n"),
            (b"1\n2\n3\n", b"1\n3\n", b"x\ny\n", None),
            (b"1\n2\n", b"1\nx\ny\n", b"1\nx\nbetween\ny\n", None),
            (b"", b"a\n", b"a\nb\n", b"b\n"),
            (b"a\nb\n", b"A\nb\n", b"A\nB\n", b"a\nB\n"),  # side by side
            (b"a\nb\nc\n", b"a\nc\n", b"a\nC\n", b"a\nb\nC\n"),
            (b"a\nb\nc\n", b"a\nc\n", b"a\nnew\nC\n", None),
            (b"a\nb\nc\n", b"a\nc\n", b"A\nC\n", None),
            (b"a\nb\nc\n", b"a\nc\n", b"a\n", b"a\nb\n"),
            (b"a\nb\nc\n", b"a\nB\nc\n", b"a\nnew\nB\nc\n", b"a\nnew\nb\nc\n"),
        ],
    )
    def test_lines_come_back_where_they_were_or_not_at_all(
        self, before: bytes, after: bytes, now: bytes, expected: bytes | None
    ) -> None:
        assert lines_merged(now, after, before) == expected

    def test_a_block_that_was_copied_since_is_ambiguous(self) -> None:
        block = b"def f():\n    return 2\n\n"
        before = b"top\n" + block.replace(b"2", b"1") + b"end\n"

        told = taken_out(before, b"top\n" + block + b"end\n", b"top\n" + block * 2 + b"end\n")

        assert told.content is None
        assert "more than one way" in told.detail

    def test_a_conflict_names_the_lines(self) -> None:
        text = b"".join(b"%d\n" % n for n in range(1, 21))
        after = text.replace(b"\n7\n8\n", b"\nseven\neight\n")

        told = taken_out(text, after, b"new\n" + after.replace(b"eight", b"acht"))

        assert told.content is None
        assert "line 9 changed since" in told.detail

    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
    @pytest.mark.parametrize("last", [b"", b"end"])
    def test_line_ends_and_a_missing_last_one_stay(self, end: bytes, last: bytes) -> None:
        text = end.join(b"line %d" % n for n in range(10)) + end + last

        told = taken_out(
            text, text.replace(b"line 3", b"x"), text.replace(b"line 3", b"x").replace(b"8", b"y")
        )

        assert told.content == text.replace(b"8", b"y")

    def test_the_encoding_stays(self) -> None:
        text = "\ufeffé\nà\nü\nö\n"
        for encoding in ("utf-8", "latin-1"):
            old = text.removeprefix("\ufeff" if encoding == "latin-1" else "").encode(encoding)
            new = old.replace("à".encode(encoding), b"x")
            told = taken_out(old, new, new + "ß\n".encode(encoding))
            assert told.content == old + "ß\n".encode(encoding)

    def test_what_is_no_text_is_not_merged(self) -> None:
        assert taken_out(b"a\0b\n1\n2\n3\n", b"a\0b\nx\n2\n3\n", b"a\0b\nx\n2\n4\n").content is None

    @pytest.mark.parametrize("kind", ["unique", "seven kinds", "all the same", "all different"])
    def test_a_hundred_thousand_lines_take_seconds(self, kind: str) -> None:
        many = 100_000
        line = {
            "unique": b"line %d\n",
            "seven kinds": b"%d\n",
            "all the same": b"x\n",
            "all different": b"%d\n",
        }
        spread = 7 if kind == "seven kinds" else many
        text = [line[kind] % (n % spread) if b"%" in line[kind] else b"x\n" for n in range(many)]
        after, now = list(text), list(text)
        after[500] = now[500] = b"the edit\n"
        for n in range(1_000, many, 3_000):
            now[n] = b"later %d\n" % n
        if kind == "all different":
            now = [b"other %d\n" % (n * 7 % many) for n in range(many)]
        started = time.process_time()

        told = lines_merged(*(b"".join(part) for part in (now, after, text)))

        assert time.process_time() - started < 20
        assert (told is None) == (kind == "all different")
        assert told is None or told.count(b"the edit\n") == 0


class TestDiff:
    @given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
    def test_hunks_lead_from_one_to_the_other(self, old: list[int], new: list[int]) -> None:
        result: list[int] = []
        at = 0
        for hunk in hunks(old, new):
            result += old[at : hunk.start] + new[hunk.new_start : hunk.new_end]
            at = hunk.end
        assert result + old[at:] == new

    def test_it_is_shown_as_diff_shows_it(self) -> None:
        text = b"".join(b"%d\n" % n for n in range(1, 10))

        assert unified(text + b"end", text.replace(b"5\n", b"") + b"end", b"f").splitlines() == [
            "--- f (now)", "+++ f (merged)", "@@ -2,7 +2,6 @@", " 2", " 3", " 4", "-5", " 6", " 7", " 8",
        ]  # fmt: skip


class TestKeys:
    @pytest.mark.parametrize(
        ("before", "after", "now", "expected"),
        [
            ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 3}, {"a": 1, "b": 3}),
            ({"a": 1}, {"a": 2}, {"a": 3}, None),
            ({}, {"a": 1}, {"a": 1, "b": 2}, {"b": 2}),
            ({}, {"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, None),
            ({"a": 1, "b": 2}, {"b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
            ({"a": 1}, {}, {"a": 2}, None),
            ({"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 2, "y": 2}}, {"a": {"x": 1, "y": 2}}),
            ({"a": 1}, {"a": True}, {"a": True, "b": 1}, {"a": 1, "b": 1}),
            ([1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 4]),
            ([1, 2], [1, 3, 2], [0, 1, 3, 2], [0, 1, 2]),
            ([1, 2, 3], [1, 3], [1, 3, 4], [1, 2, 3, 4]),
            ([1, 2, 3], [1, 2], [1, 2, 4], None),  # before the new entry, or after it?
            ([1], [1, 1], [2, 1, 1], [2, 1]),
            ([7, 1], [7, 2], [7, 2, 7, 2], None),  # which of the two?
            ([{"n": 1, "v": 1}, {"n": 2}], [{"n": 1, "v": 2}, {"n": 2}], [{"n": 1, "v": 2, "w": 3}, {"n": 2}],
             [{"n": 1, "v": 1, "w": 3}, {"n": 2}]),
            ([1.0], [1], [1, 2], [1.0, 2]),
        ],
    )  # fmt: skip
    def test_entries_are_found_by_value_and_neighbours(
        self, before: Any, after: Any, now: Any, expected: Any
    ) -> None:
        try:
            found = merged_document(after, before, now)
        except KeyClash:
            found = None
        assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)

    def test_keys_that_come_back_stand_where_they_stood(self) -> None:
        before = {"a": 1, "b": 2, "c": 3}
        assert list(merged_document({"a": 1, "c": 3}, before, {"a": 1, "c": 4, "d": 5})) == [
            "a",
            "b",
            "c",
            "d",
        ]

    def test_a_file_with_keys_is_merged_by_key_where_its_lines_do_not_merge(self) -> None:
        before, after = '{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "b": 2\n}\n'
        now = '{\n  "a": 1,\n  "b": 2,\n  "c": 3\n}\n'

        told = taken_out(before.encode(), after.encode(), now.encode(), b"/x/f.json")

        assert told.content == b'{\n  "a": 1,\n  "c": 3\n}\n'
        assert told.detail.startswith("merged by key")

    def test_comments_of_the_edit_go_with_it(self) -> None:
        before = b"a: 1\nb: 2\nc: 3\n"
        after = before.replace(b"a: 1\n", b"# why\na: 5 # high\n")

        assert taken_out(before, after, after + b"d: 4\n", b"f.yaml").content == before + b"d: 4\n"

    def test_an_edit_of_comments_alone_is_not_said_to_be_taken_out(self) -> None:
        before, after = b"a: 1\nb: 2\n", b"a: 1 # one\nb: 2\n"

        assert taken_out(before, after, b"a: 1 # two\nb: 2\n", b"f.yaml").content is None
        assert taken_out(before, after, b"a: 1 # one\nb: 3\n", b"f.yaml").content == b"a: 1\nb: 3\n"

    def test_what_does_not_parse_is_never_merged_by_line(self) -> None:
        text = b"".join(b"k%d: %d\n" % (n, n) for n in range(20))
        broken = b"{{ template }}: [\n" + text

        after = broken.replace(b"k3: 3", b"k3: 4")

        told = taken_out(broken, after, after + b"z: 1\n", b"f.yaml")

        assert told.content is None

    @pytest.mark.parametrize("name", [b"f.yaml", b"f.toml", b"f.json"])
    def test_without_its_parser_it_is_refused_with_a_hint(
        self, name: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import builtins

        real = builtins.__import__

        def without(name: str, *args: Any, **options: Any) -> Any:
            if name.startswith(("ruamel", "tomlkit")):
                raise ImportError(name)
            return real(name, *args, **options)

        monkeypatch.setattr(builtins, "__import__", without)
        text = {
            b"f.yaml": b"a: 1\nb: 2\nc: 3\nd: 4\n",
            b"f.toml": b"a = 1\nb = 2\n[t]\nx = [1]\n",
            b"f.json": b'{\n"a": 1,\n"b": 2,\n"c": 3\n}\n',
        }[name]
        after = text.replace(b"1\n", b"9\n", 1).replace(b"1,", b"9,", 1).replace(b"[1]", b"[1, 2]")
        now = after.replace(b"2\n", b"8\n", 1).replace(b"[1, 2]", b"[1, 2, 3]")

        told = taken_out(text, after, now, name)

        if name == b"f.json":
            assert told.content is not None
        else:
            assert told.content is None
            assert "Install it: pip install " in told.detail and "[config]'" in told.detail

    def test_a_document_with_many_entries_takes_seconds(self) -> None:
        document = {f"key{n}": {"value": n, "list": [n, n + 1]} for n in range(20_000)}
        before = json.dumps(document, indent=1).encode()
        after = before.replace(b'"value": 500,', b'"value": -1,')
        now = after.replace(b'"value": 900,', b'"value": -2,')
        started = time.process_time()

        told = taken_out(before, after, now, b"f.json")

        assert told.content == before.replace(b'"value": 900,', b'"value": -2,')
        assert time.process_time() - started < 30


def edits_of(dice: random.Random, many: int) -> list[tuple[int, bytes]]:
    """Each leaves other lines than any before: what writes the same again is found in the journal, not here."""
    return [(dice.randrange(6), b"edit %d\n" % n * dice.randrange(1, 3)) for n in range(many)]


def with_edits(edits: list[tuple[int, bytes]]) -> bytes:
    regions = {region: b"region %d\n" % region for region in range(6)}
    regions |= dict(edits)
    return b"".join(b"wall %d\n%s" % (number, regions[number]) for number in range(6)) + b"end\n"


@pytest.mark.parametrize("seed", range(200))
def test_an_edit_taken_out_of_a_history_leaves_the_text_that_it_had_without(seed: int) -> None:
    dice = random.Random(seed)
    edits = edits_of(dice, dice.randrange(2, 9))
    victim = dice.randrange(len(edits))
    others = [*edits[:victim], *edits[victim + 1 :]]
    before, after = with_edits(edits[:victim]), with_edits(edits[: victim + 1])
    stacked = any(region == edits[victim][0] for region, _ in edits[victim + 1 :])

    merged = lines_merged(with_edits(edits), after, before)

    assert merged == with_edits(others) or (stacked and merged in (None, with_edits(edits)))
