"""The nouns: what is written must read back the same, in any process, years later."""

import json
from itertools import product
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from takeback.errors import RecordInvalid
from takeback.model import ids, remedy
from takeback.model.change import UNDO, OnConflict, UndoTerms, change_recorded, intent, recorded_args
from takeback.model.effect import BROUGHT_BACK, OPEN_STATES, TAKEN_BACK, TRANSITIONS, State, moved
from takeback.model.plan import Standing, TargetSighting, together
from takeback.model.record import GENESIS, Kind, canonical, chained
from takeback.model.remedy import Remedy, Strategy, Target
from takeback.model.resource import ancestors, display, file_resource, overlaps, path_of, quote, unquote

NAMES = st.binary(min_size=1, max_size=255).filter(lambda name: not {b"/"[0], 0} & set(name))
PATHS = st.lists(NAMES, min_size=1, max_size=6).map(lambda names: b"/" + b"/".join(names))
KEYS = st.text(st.characters(max_codepoint=127), max_size=20)
# RFC 8785 knows no whole number that a double cannot hold, and no half of a surrogate pair.
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(st.binary())
@example(b"%41")
@example(b"new\nline \xff\xfe #?")
def test_any_bytes_survive_quoting(raw: bytes) -> None:
    assert unquote(quote(raw)) == raw


@given(st.binary())
def test_quoted_text_is_printable_ascii_without_a_fragment_mark(raw: bytes) -> None:
    text = quote(raw)

    assert text.isascii()
    assert "#" not in text
    assert all(character.isprintable() and character != " " for character in text)


@given(PATHS, st.sampled_from(["", "/tls/on"]))
def test_a_path_of_any_bytes_is_found_again_in_its_resource(path: bytes, fragment: str) -> None:
    assert path_of(file_resource(path, fragment)) == path


@given(PATHS)
def test_what_a_person_is_shown_has_no_control_characters(path: bytes) -> None:
    assert display(file_resource(path)).isprintable()


@given(PATHS, NAMES)
def test_a_directory_overlaps_what_is_in_it_and_is_among_its_ancestors(path: bytes, name: bytes) -> None:
    directory, inside = file_resource(path), file_resource(path + b"/" + name)

    assert overlaps(directory, inside)
    assert overlaps(inside, directory)
    assert ancestors(inside)[0] == directory
    assert ancestors(inside)[-1] == "file:///"


@given(PATHS, NAMES)
def test_a_name_that_only_begins_the_same_does_not_overlap(path: bytes, more: bytes) -> None:
    assert not overlaps(file_resource(path), file_resource(path + more))


def test_a_key_overlaps_its_file_and_its_subkeys_but_not_its_neighbours() -> None:
    whole = file_resource("/etc/app.toml")
    tls, deeper, port = (file_resource("/etc/app.toml", key) for key in ("/tls", "/tls/on", "/port"))

    assert overlaps(whole, tls)
    assert overlaps(tls, deeper)
    assert not overlaps(tls, port)
    assert ancestors(deeper)[:3] == (tls, whole, file_resource("/etc"))


@given(JSON)
def test_canonical_json_is_that_of_the_reference_implementation(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.slow
@settings(max_examples=3_000)
@given(JSON)
def test_canonical_json_is_that_of_the_reference_in_three_thousand_cases(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)
    assert json.loads(canonical(value)) == value


PHASES: list[dict[str, Any]] = [
    {},
    {"waits": "person", "was_held": True},
    {"gate": {"plan": "none", "until": 5}, "reviewed": {"how": "h", "receipt": {}, "rows": "d", "until": 0}},
]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("write", {"content": "d", "size": 1}),
    ("write", {"content": "d", "size": 1, "allow_inexact": True, "home": "h", "most": 3}),
    ("run", {"argv": ["a"], "conflicts": [["file:///a", "it is new"]]}),
    ("watch", {"roots": ["file:///"], "others": True}),
    ("commit", {"merged": "", "exit_code": 0}),
    ("commit", {"merged": "e", "partial": 1, "only": 2}),  # of no undo: its adapter's own
    (UNDO, {"on_conflict": "refuse"}),
    (UNDO, {"on_conflict": "merge-or-skip", "partial": True, "only": [], "together": "t", "decided_at": 7}),
    (UNDO, {"on_conflict": "merge", "explained": {"f": {"digest": "d"}}, "later": {"f": [["e", "a", "b"]]}}),
]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("kind", "args"), REQUESTS)
def test_what_a_record_says_of_a_change_is_typed_and_written_again_as_it_was(
    kind: str, args: dict[str, Any], phase: dict[str, Any]
) -> None:
    change = change_recorded("file", kind, "file:///a", "a word", args | phase)

    assert canonical(recorded_args(change)) == canonical(args | phase)
    same = {name: value for name, value in args.items() if name not in ("home", "most")}
    assert canonical(intent(change)["args"]) == canonical(same), "the phase is no part of the request"
    typed = {"allow_inexact", "conflicts", "others", "merged"} | (
        {*UndoTerms._fields} if kind == UNDO else set()
    )
    assert typed.isdisjoint(change.args)


def test_an_undo_of_which_nothing_is_recorded_refuses_conflicts() -> None:
    assert change_recorded("file", UNDO, "file:///a", "", {}).undo.on_conflict is OnConflict.REFUSE


@given(st.integers())
def test_whole_numbers_of_any_size_survive(number: int) -> None:
    assert json.loads(canonical({"n": number})) == {"n": number}


@pytest.mark.parametrize("value", [1.5, 1.0, float("nan"), [1.5], (1.5,), {"a": {"b": [0, 1.5]}}])
def test_numbers_with_a_fraction_are_refused_wherever_they_hide(value: Any) -> None:
    with pytest.raises(ValueError, match="fraction"):
        canonical(value)


def test_a_record_hash_covers_every_part_of_the_record() -> None:
    whole = (GENESIS, 1, 2, "done", "run", "effect", b"{}")
    others = (bytes([1]) * 32, 9, 9, "abort", "other", "other", b"[]")
    varied = {
        chained(*(others[part] if part == change else whole[part] for part in range(7)))  # pyright: ignore
        for change in range(-1, 7)
    }

    assert len(varied) == 8


TABLE = """
    none      propose       proposed
    none      intent        intended
    proposed  decide        proposed
    proposed  intent        intended
    proposed  abort         aborted
    intended  done          done
    intended  abort         aborted
    intended  stick         stuck
    proposed  drop          dropped
    intended  drop          dropped
    dropped   intent        intended
    dropped   erase         aborted
    stuck     done          done
    stuck     abort         aborted
    done      accept        done
    undone    accept        undone
    done      keep          done
    undone    keep          undone
    done      pin           done
    undone    pin           undone
    done      unpin         done
    undone    unpin         undone
    done      forget        done
    undone    forget        undone
    done      taken-back    undone
    undone    brought-back  done
"""


def test_the_state_moves_as_the_design_says_and_in_no_other_way() -> None:
    expected = {tuple(line.split()[:2]): line.split()[2] for line in TABLE.strip().splitlines()}
    events = [*(kind.value for kind in Kind), TAKEN_BACK, BROUGHT_BACK]

    for state, event in product([None, *State], events):
        after = expected.get((state.value if state else "none", event.replace(" ", "-")))
        if after:
            assert moved(state, event, "here") == after
        else:
            with pytest.raises(RecordInvalid, match="cannot follow"):
                moved(state, event, "here")
    assert len(TRANSITIONS) == len(expected)


def test_an_aborted_effect_stays_aborted_and_an_open_one_can_always_be_settled() -> None:
    assert not [event for state, event in TRANSITIONS if state is State.ABORTED]
    for state in OPEN_STATES:
        assert TRANSITIONS[state, Kind.ABORT] is State.ABORTED


@given(
    st.builds(
        Remedy,
        adapter=st.text(),
        version=st.integers(1),
        strategy=st.sampled_from(Strategy),
        targets=st.lists(
            st.builds(Target, st.text(), st.dictionaries(KEYS, JSON), st.dictionaries(KEYS, JSON)), max_size=3
        ).map(tuple),
        payload=st.dictionaries(KEYS, JSON),
        blobs=st.lists(st.text()).map(tuple),
        exact=st.booleans(),
        residue=st.text(),
        good_until=st.text(),
    )
)
def test_a_remedy_is_data(one: Remedy) -> None:
    written = canonical(remedy.to_json(one))

    assert remedy.from_json(json.loads(written)) == one


@pytest.mark.parametrize(
    ("seen", "whole"),
    [
        ((), Standing.UNKNOWN),
        ((Standing.BEFORE,), Standing.BEFORE),
        ((Standing.AFTER, Standing.AFTER), Standing.AFTER),
        ((Standing.BEFORE, Standing.AFTER), Standing.BETWEEN),
        ((Standing.BETWEEN, Standing.AFTER), Standing.BETWEEN),
        ((Standing.AFTER, Standing.FOREIGN), Standing.FOREIGN),
        ((Standing.FOREIGN, Standing.UNKNOWN), Standing.UNKNOWN),
    ],
)
def test_one_odd_target_makes_the_whole_effect_odd(seen: tuple[Standing, ...], whole: Standing) -> None:
    assert together(tuple(TargetSighting("r", standing, {}) for standing in seen)).standing is whole


@given(st.binary(min_size=13, max_size=13))
def test_an_id_is_twenty_letters_that_cannot_be_mistaken(random: bytes) -> None:
    id = ids.new_id(random)

    assert len(id) == ids.LENGTH
    assert set(id) <= set(ids.ALPHABET)
    assert id == ids.new_id(random)


def test_ids_do_not_repeat() -> None:
    assert len({ids.new_id() for _ in range(10_000)}) == 10_000
