"""Pointers, and what changes of keys make of a document."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.adapters.config.keys import (
    Add,
    Drop,
    Put,
    RestoredKey,
    Tagged,
    find,
    from_fragment,
    neighbours,
    pointer_of,
    same,
    spelled_float,
    steps,
    to_fragment,
    tokens,
    with_changes,
    with_restored,
)
from takeback.errors import Misuse, Refused

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(allow_nan=False)
documents = st.dictionaries(
    st.text(max_size=2),
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
        max_leaves=12,
    ),
    max_size=4,
)


@given(st.lists(st.text(), max_size=4))
def test_a_pointer_and_its_tokens_are_two_forms_of_one_thing(path):
    pointer = pointer_of(path)

    assert tokens(pointer) == tuple(path)
    assert to_fragment(pointer).isascii() and from_fragment(to_fragment(pointer)) == pointer


def test_a_pointer_without_slash_is_misuse():
    with pytest.raises(Misuse) as caught:
        tokens("a/b")

    assert caught.value.hint


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, True, False),
        (1, 1.0, False),
        (1.0, spelled_float("1.00"), True),
        (0, False, False),
        ("1", 1, False),
        ([], {}, False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        (float("nan"), float("nan"), True),
        (Tagged("timestamp", "2001-01-01"), "2001-01-01", False),
        (Tagged("timestamp", "2001-01-01"), Tagged("timestamp", "2001-01-01"), True),
        (None, False, False),
    ],
)
def test_sameness_counts_the_type(one, other, expected):
    assert same(one, other) is same(other, one) is expected


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("/a/0/b", (True, 1)),
        ("/a/1", (True, None)),
        ("/a/2", (False, None)),
        ("/a/-", (False, None)),
        ("/a/00", (False, None)),
        ("/a/0/b/c", (False, None)),
        ("/x~1y/~0", (True, "z")),
        ("/", (True, "empty")),
    ],
)
def test_looking_follows_the_pointer(pointer, expected):
    document = {"a": [{"b": 1}, None], "x/y": {"~": "z"}, "": "empty"}

    assert find(document, pointer) == expected


def test_missing_parents_are_made_and_named():
    outcome = with_changes({"a": {}}, {"/a/b/c": 1, "/d/e": 2}, [])

    assert outcome.wanted == {"a": {"b": {"c": 1}}, "d": {"e": 2}}
    assert outcome.made == ("/a/b", "/d") and outcome.touched == ("/a/b/c", "/d/e")


def test_a_list_whose_length_changes_is_named_as_a_whole():
    outcome = with_changes({"a": [1, 2, 3, {"x": 1}]}, {"/a/-": 9, "/a/3/x": 2}, ["/a/0", "/a/2"])

    assert outcome.wanted == {"a": [2, {"x": 2}, 9]}
    assert outcome.touched == ("/a",)


def test_a_document_that_is_a_list_can_grow_and_shrink_and_is_named_as_a_whole():
    grown = with_changes([1, 2], {"/-": 3}, [])
    shrunk = with_changes([1, 2], {}, ["/0"])

    assert (grown.wanted, grown.touched) == ([1, 2, 3], ("",))
    assert (shrunk.wanted, shrunk.touched) == ([2], ("",))
    assert with_restored([1, 2, 3], [RestoredKey("", True, [1, 2])]).wanted == [1, 2]


def test_an_item_that_only_changes_is_named_itself():
    assert with_changes({"a": [1, 2]}, {"/a/1": 3}, []).touched == ("/a/1",)


def test_deleting_what_is_not_there_changes_nothing():
    document = {"a": [1]}

    assert with_changes(document, {}, ["/b", "/a/7", "/c/d"]).wanted == document


@pytest.mark.parametrize(
    ("sets", "deletes"), [({"/a": 1, "/a/b": 2}, []), ({"/a/b": 1}, ["/a"]), ({"": 1}, []), ({}, [""])]
)
def test_keys_inside_one_another_are_misuse(sets, deletes):
    with pytest.raises(Misuse):
        with_changes({}, sets, deletes)


@pytest.mark.parametrize(
    ("document", "pointer", "message"),
    [
        ({"a": 1}, "/a/b", "/a holds a number"),
        ({"a": "x"}, "/a/b", "/a holds text"),
        ({"a": None}, "/a/b", "/a holds null"),
        ({"a": [1]}, "/a/b", "is a list of 1"),
        ({"a": [1]}, "/a/2", "is a list of 1"),
        ({"a": [1]}, "/a/01", "is a list of 1"),
        ([1], "/a", "The document is a list"),
        ("x", "/a", "The document holds text"),
        ({"a": Tagged("*", "base")}, "/a/b", "alias of &base"),
    ],
)
def test_a_pointer_that_leads_nowhere_is_refused_with_a_hint(document, pointer, message):
    with pytest.raises(Refused, match=message) as caught:
        with_changes(document, {pointer: 1}, [])

    assert caught.value.hint


@given(documents, documents)
def test_the_steps_lead_from_any_document_to_any_other(now, wanted):
    reached = now
    for step in steps(now, wanted):
        reached = carried_out(reached, step)

    assert same(reached, wanted)


@given(documents)
def test_no_steps_lead_to_where_one_is(document):
    assert list(steps(document, document)) == []


def carried_out(document, step):
    """A plain model of what a step means."""
    import copy

    document = copy.deepcopy(document)

    def at(path):
        value = document
        for key in path:
            value = value[key]
        return value

    match step:
        case Put(path, value):
            if not path:
                return value
            at(path[:-1])[path[-1]] = value
        case Add(path, key, value, _):
            container = at(path)
            if isinstance(container, list):
                container.insert(key, value)
            else:
                container[key] = value
        case Drop(path):
            del at(path[:-1])[path[-1]]
    return document


def test_restored_keys_come_back_in_their_old_order():
    before = {"a": 1, "b": 2, "c": 3, "d": 4}
    keys = [
        RestoredKey(f"/{name}", True, before[name], *neighbours(before, f"/{name}"))
        for name in ("c", "b", "a")
    ]

    restored = with_restored({"d": 4, "e": 5}, keys).wanted

    assert list(restored.items()) == [*before.items(), ("e", 5)]


def test_a_made_parent_goes_only_when_it_is_empty():
    gone = [RestoredKey("/a/b/c", False)]

    assert with_restored({"a": {"b": {"c": 1}}}, gone, ["/a", "/a/b"]).wanted == {}
    assert with_restored({"a": {"b": {"c": 1}, "x": 1}}, gone, ["/a", "/a/b"]).wanted == {"a": {"x": 1}}
    assert with_restored({"a": {"b": {"c": 1}}}, gone).wanted == {"a": {"b": {}}}
