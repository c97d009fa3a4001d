"""Editing the text of JSON, YAML and TOML: the keys asked for change, everything else stays as it was typed."""

import datetime
import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback.adapters.config import formats, json_edit
from takeback.adapters.config.formats import edit, format_of, from_journal, look, read, to_journal
from takeback.adapters.config.keys import same
from takeback.errors import Misuse, Refused, ValidationFailed
from takeback.model.record import canonical


def edited(format, text, set=None, delete=()):
    return edit(format, text.encode(), set or {}, delete).decode()


@pytest.mark.parametrize(
    ("text", "set", "delete", "expected"),
    [
        ('{"a": 1, "b": 2}', {"/a": 5}, [], '{"a": 5, "b": 2}'),
        ('{"a":1,"b":2}', {"/c": {"d": [1, 2]}}, [], '{"a":1,"b":2,"c":{"d":[1,2]}}'),
        ('{"a": 1, "b": 2}', {}, ["/a"], '{"b": 2}'),
        ('{"a": 1, "b": 2}', {}, ["/b"], '{"a": 1}'),
        ('{"a": 1}', {}, ["/a"], "{}"),
        ("{}", {"/a": 1}, [], '{"a": 1}'),
        ("{}\n", {"/a": {"b": 1}}, [], '{"a": {"b": 1}}\n'),
        ('{\n  "a": 1\n}\n', {"/b": 2}, [], '{\n  "a": 1,\n  "b": 2\n}\n'),
        ('{\n\t"a": 1\n}', {"/b": [1]}, [], '{\n\t"a": 1,\n\t"b": [\n\t\t1\n\t]\n}'),
        ('{\r\n  "a": 1\r\n}\r\n', {"/b": 2}, [], '{\r\n  "a": 1,\r\n  "b": 2\r\n}\r\n'),
        ('{\n  "a": 1,\n  "b": 2\n}', {}, ["/b"], '{\n  "a": 1\n}'),
        ('{\n  "a": 1,\n  "b": 2\n}', {}, ["/a"], '{\n  "b": 2\n}'),
        ('{"n": 1.50, "e": 1E5, "x": 0}', {"/x": 1}, [], '{"n": 1.50, "e": 1E5, "x": 1}'),
        ("[1, 2, 3]", {"/-": 4, "/0": 0}, ["/1"], "[0, 3, 4]"),
        ("[\n  1,\n  2\n]", {}, ["/0", "/1"], "[]"),
        ('{"a" : 1 ,"b":[ ]}', {"/b/-": "x"}, [], '{"a" : 1 ,"b":["x"]}'),
        ('{"\\u00e9": "\\u00e9"}', {"/b": "ü"}, [], '{"\\u00e9": "\\u00e9", "b": "\\u00fc"}'),
        ('{"é": 1}', {"/b": "ü"}, [], '{"é": 1, "b": "ü"}'),
        ('\ufeff{"a": 1}', {"/a": 2}, [], '\ufeff{"a": 2}'),
        ('{"a": "br{ac]e, \\" "}', {"/b": 1}, [], '{"a": "br{ac]e, \\" ", "b": 1}'),
        ('{"a": true}', {"/a": 1}, [], '{"a": 1}'),
    ],
)
def test_json_is_changed_where_it_must_be(text, set, delete, expected):
    assert edited("json", text, set, delete) == expected


TSCONFIG = """\
{
\t// The compiler
\t"compilerOptions": {
\t\t"target": "ES2022", // modern
\t\t/* paths */
\t\t"paths": {
\t\t\t"@/*": ["./src/*"],
\t\t},
\t\t"jsx": "react-jsx", // last, with comma
\t},
\t"include": ["src"], // what
\t"exclude": ["http://x"] // what not
}
"""


@pytest.mark.parametrize(
    ("set", "delete", "old", "new"),
    [
        ({"/compilerOptions/target": "ES2020"}, [], '"ES2022"', '"ES2020"'),
        (
            {"/compilerOptions/strict": True},
            [],
            "// last, with comma\n",
            '// last, with comma\n\t\t"strict": true,\n',
        ),
        (
            {"/files": []},
            [],
            '"exclude": ["http://x"] // what not\n',
            '"exclude": ["http://x"], // what not\n\t"files": []\n',
        ),
        ({}, ["/exclude"], '], // what\n\t"exclude": ["http://x"] // what not\n', "] // what\n"),
        ({}, ["/compilerOptions/target"], '\t\t"target": "ES2022", // modern\n', ""),
        ({}, ["/compilerOptions/jsx"], '\t\t"jsx": "react-jsx", // last, with comma\n', ""),
    ],
)
def test_comments_and_trailing_commas_of_jsonc_stay(set, delete, old, new):
    assert TSCONFIG.count(old) == 1

    assert edited("jsonc", TSCONFIG, set, delete) == TSCONFIG.replace(old, new)


def test_json_with_comments_that_is_not_said_to_be_is_refused_with_the_way_out():
    with pytest.raises(Refused) as caught:
        edit("json", TSCONFIG.encode(), {"/a": 1})

    assert "jsonc" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "set", "delete", "expected"),
    [
        ("a: 1 # one\nb: 2\n", {"/a": 5}, [], "a: 5 # one\nb: 2\n"),
        ("a: 'x'\nb: \"y\"\n", {"/a": "it's", "/b": "z"}, [], "a: 'it''s'\nb: \"z\"\n"),
        ("a: x\n", {"/a": "yes"}, [], 'a: "yes"\n'),
        ("a: x\n", {"/a": "12:30"}, [], 'a: "12:30"\n'),
        ("a: x\n", {"/a": "1.0"}, [], 'a: "1.0"\n'),
        ("a: x\n", {"/a": "a: b"}, [], 'a: "a: b"\n'),
        ("a: x\n", {"/a": "# no comment"}, [], 'a: "# no comment"\n'),
        ("a: x\n", {"/a": ""}, [], 'a: ""\n'),
        ("a: x\n", {"/a": "nginx:1.25"}, [], "a: nginx:1.25\n"),
        ("a: x\n", {"/a": None}, [], "a: null\n"),
        ("a:\nb: 1\n", {"/a": 1}, [], "a: 1\nb: 1\n"),
        ("a:   # why\nb: 1\n", {"/a": 1}, [], "a: 1   # why\nb: 1\n"),
        ("a:\n  b: 1\n", {"/a/c": "d"}, [], "a:\n  b: 1\n  c: d\n"),
        ("a:\n    b: 1\n", {"/k/m": 2}, [], "a:\n    b: 1\nk:\n    m: 2\n"),
        ("a:\n- x\n- y\n", {"/a/-": "z"}, [], "a:\n- x\n- y\n- z\n"),
        ("a:\n  - x\n  - y\n", {"/a/-": {"k": [1]}}, [], "a:\n  - x\n  - y\n  - k:\n      - 1\n"),
        ("a:\n  - x\n  # about y\n  - y # y\n", {}, ["/a/0"], "a:\n  # about y\n  - y # y\n"),
        ("a:\n  - k: 1\n    l: 2\n", {}, ["/a/0/k"], "a:\n  - l: 2\n"),
        ("a:\n  b: 1\n# end\n", {}, ["/a/b"], "a: {}\n# end\n"),
        ("a: {}\n", {"/a/b": 1}, [], "a:\n  b: 1\n"),
        ("a: {b: 1, c: [x]}\n", {"/a/c/-": "z", "/a/d": 2}, [], "a: {b: 1, c: [x, z], d: 2}\n"),
        ("a: {b: 1, c: 2}\n", {}, ["/a/c"], "a: {b: 1}\n"),
        ("a: 1\n", {"/a": "one\ntwo\n"}, [], "a: |\n  one\n  two\n"),
        ("a: |\n  one\n  two\nb: 1\n", {"/a": "x"}, [], "a: x\nb: 1\n"),
        ("a: >-\n  one\n  two\n\n# c\nb: 1\n", {}, ["/a"], "\n# c\nb: 1\n"),
        ("# only a comment\n", {"/a": 1}, [], "# only a comment\na: 1\n"),
        ("", {"/a/b": 1}, [], "a:\n  b: 1\n"),
        ("---\na: 1\n...\n", {"/b": 2}, [], "---\na: 1\nb: 2\n...\n"),
        ("a: 1", {"/b": 2}, [], "a: 1\nb: 2"),
        ("a: 1\r\nb: 2\r\n", {"/c": [1]}, ["/a"], "b: 2\r\nc:\r\n  - 1\r\n"),
        ("a: &x 1\nb: *x\n", {"/a": 2}, [], "a: &x 2\nb: *x\n"),
        ("a: &x 1\nb: *x\n", {"/b": 2}, [], "a: &x 1\nb: 2\n"),
        ("a: &x 1\nb: *x\n", {"/a": {"c": 1}}, [], "a: &x\n  c: 1\nb: *x\n"),
        ("a: &x # c\n  b: 1\nc: *x\n", {"/a": 2}, [], "a: &x 2 # c\nc: *x\n"),
        ("a: !t x\nb: 1\n", {"/b": 2}, [], "a: !t x\nb: 2\n"),
        ("on: push\n8080: x\n", {"/on": "pull", "/8080": "z"}, [], "on: pull\n8080: z\n"),
        ("a: 1\n", {"/yes": 1}, [], 'a: 1\n"yes": 1\n'),
        ("- 1\n- 2\n", {"/-": 3}, ["/0"], "- 2\n- 3\n"),
        ("a: 2001-12-14\n", {"/a": datetime.date(2002, 1, 1)}, [], "a: 2002-01-01\n"),
        ("a: 0o755\nb: 1\n", {"/b": 2}, [], "a: 0o755\nb: 2\n"),
        ('a: "x"   # c\n', {"/a": [1]}, [], "a:   # c\n  - 1\n"),
        ("a:\n- x # c\n- z\n", {"/a/0": {"k": [1]}}, [], "a:\n- {k: [1]} # c\n- z\n"),
        ("a: x # c\n", {"/a": "one\ntwo"}, [], 'a: "one\\ntwo" # c\n'),
    ],
)
def test_yaml_is_changed_where_it_must_be(text, set, delete, expected):
    assert edited("yaml", text, set, delete) == expected


@pytest.mark.parametrize(
    ("text", "set", "delete", "expected"),
    [
        ("a = 1 # one\n", {"/a": 2}, [], "a = 2 # one\n"),
        ("a=1\n", {"/b": "x"}, [], 'a=1\nb = "x"\n'),
        ("a = 1\n[s] # s\nb = 2\n", {"/s/c": True}, [], "a = 1\n[s] # s\nb = 2\nc = true\n"),
        ("a = 1\n[s]\nb = 2\n", {}, ["/s/b"], "a = 1\n[s]\n"),
        ("a.b = 1\n", {"/a/c": 2}, [], "a.b = 1\na.c = 2\n"),
        ("a = [1, 2] # l\n", {"/a/-": 3}, ["/a/0"], "a = [2, 3] # l\n"),
        ("a = 1979-05-27\n", {"/a": datetime.date(1980, 1, 1)}, [], "a = 1980-01-01\n"),
        ("[a]\nx = 1\n\n# about b\n[b]\ny = 1\n", {}, ["/a"], "\n# about b\n[b]\ny = 1\n"),
        ("a = 1.50\nb = 0x1F\nc = 1\n", {"/c": 2}, [], "a = 1.50\nb = 0x1F\nc = 2\n"),
        ("a = 1\r\nb = 2\r\n", {"/c": 3}, [], "a = 1\r\nb = 2\r\nc = 3\r\n"),
        ("a = {b = 1}\n", {"/a/c": {"d": 1}}, [], 'a = {b = 1,c = {"d" = 1}}\n'),
        ("", {"/a/b": 1}, [], "[a]\nb = 1\n"),
        ("[[a]]\nx = 1\n\n[[a]]\nx = 2\n", {"/a/1/x": 3}, [], "[[a]]\nx = 1\n\n[[a]]\nx = 3\n"),
        ("'q k' = 1\n", {"/q k": 2}, [], "'q k' = 2\n"),
        ('a = "x"\n', {"/a": 'q"\\\n\x7f\u00e9'}, [], 'a = "q\\"\\\\\\u000A\\u007F\u00e9"\n'),
    ],
)
def test_toml_is_changed_where_it_must_be(text, set, delete, expected):
    assert edited("toml", text, set, delete) == expected


# -- properties

plain_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
scalars = (
    st.booleans()
    | st.integers(-(10**20), 10**20)
    | plain_text
    | st.floats(allow_nan=False, allow_infinity=False)
)


def values(with_null=True):
    leaf = scalars | st.none() if with_null else scalars
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
        max_leaves=8,
    )


BEGIN = {
    "json": '{\n  "keep": 1.50,\n  "there": {"x": [1, 2]},\n  "end": "e"\n}\n',
    "jsonc": '{\n  "keep": 1.50, // c\n  "there": {"x": [1, 2]},\n  "end": "e", // last\n}\n',
    "yaml": "keep: 0x10 # c\nthere:\n  x:\n  - 1\n  - 2\nend: 'e'\n",
    "toml": "keep = 0x10 # c\nend = 'e'\n[there]\nx = [1, 2]\n",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("format", formats.FORMATS)
@pytest.mark.parametrize(
    "pointer", ["/there", "/there/x", "/there/x/0", "/new", "/there/new/er", "/there/x/-"]
)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_value_set_anywhere_is_read_back_and_touches_nothing_else(format, pointer, data):
    value = data.draw(values(with_null=format != "toml"))
    kept = [line for line in BEGIN[format].splitlines() if "keep" in line]

    new = edit(format, BEGIN[format].encode(), {pointer: value})

    assert [line for line in new.decode().split("\n") if line.startswith(("keep", '  "keep'))] == kept
    where = "/there/x/2" if pointer.endswith("-") else pointer
    assert look(format, new, where)[0] and same(look(format, new, where)[1], formats.writable(format, value))
    assert look(format, new, "/keep") == look(format, BEGIN[format].encode(), "/keep")
    assert look(format, new, "/end") == (True, "e")


@pytest.mark.parametrize("format", formats.FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_survives_the_journal(format, data):
    value = formats.writable(format, data.draw(values(with_null=format != "toml")))

    stored = json.loads(canonical(to_journal(format, value)))

    assert same(from_journal(stored), value)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_json_of_any_layout_keeps_what_is_not_touched(data):
    """Rendered in many ways; then one key is set and set back: the text must be the same again."""
    value = data.draw(st.dictionaries(plain_text, values(), min_size=1, max_size=4))
    indent = data.draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    text = json.dumps(value, indent=indent, ensure_ascii=data.draw(st.booleans()))
    key = data.draw(st.sampled_from(sorted(value)))
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")

    changed = edit("json", text.encode(), {pointer: "another", "/brand new key": [1]})
    assert json.loads(changed) == value | {key: "another", "brand new key": [1]}
    removed = edit("json", changed, {}, ["/brand new key"])

    (node,) = [e.value for e in json_edit._node(removed.decode()).entries if e.key == key]
    (old,) = [e.value for e in json_edit._node(text).entries if e.key == key]
    assert removed.decode()[: node.start] == text[: old.start]
    assert removed.decode()[node.end :] == text[old.end :]


# -- refusals


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("json", b"\x80\x81"),
        ("json", b"{"),
        ("json", b""),
        ("json", b'{"a": NaN}'),
        ("json", b'{"a": 1, "a": 2}'),
        ("json", b"[" * 200_000),
        ("json", b"{'a': 1}"),
        ("json", b"\x00" * 100),
        ("jsonc", b'{"a": 1,,}'),
        ("yaml", b"a: [1"),
        ("yaml", b"a: 1\n b: 2\n"),
        ("yaml", b"a: 1\na: 2\n"),
        ("yaml", b"a: *nowhere\n"),
        ("yaml", b"a: 1\n---\nb: 1\n"),
        ("yaml", b"? [a, b]\n: 1\n"),
        ("yaml", b"\x00\x01\x02"),
        ("yaml", b"a: \x07\n"),
        ("yaml", b"[" * 20_000),
        ("yaml", b"\tb: 1\n"),
        ("toml", b"a = 1\na = 2\n"),
        ("toml", b"a = \n"),
        ("toml", b"[" * 20_000),
        ("toml", b"\x00"),
    ],
)
def test_what_is_no_document_is_refused_in_one_sentence_with_a_hint(format, data):
    with pytest.raises(Refused) as caught:
        edit(format, data, {"/a": 1})

    assert caught.value.hint and "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize("format", formats.FORMATS)
@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_arbitrary_bytes_are_edited_or_refused_never_worse(format, data):
    try:
        new = edit(format, data, {"/a": 1})
    except Refused:
        return
    assert look(format, new, "/a")[0] or read(format, data) is not None


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1: 2}, {"a": {2: 3}}, b"bytes", {1, 2}, object(), 1j]
)
@pytest.mark.parametrize("format", formats.FORMATS)
def test_a_value_that_no_document_can_hold_is_misuse(format, value):
    with pytest.raises(Misuse) as caught:
        edit(format, BEGIN[format].encode(), {"/a": value})

    assert caught.value.hint


def test_toml_has_no_null_and_json_no_dates():
    with pytest.raises(Misuse, match="no null"):
        edit("toml", b"", {"/a": None})
    with pytest.raises(Misuse, match="date"):
        edit("json", b"{}", {"/a": datetime.date(2001, 1, 1)})


def test_an_edit_that_would_break_the_document_is_not_made():
    with pytest.raises(ValidationFailed, match="no anchor"):
        edit("yaml", b"a: &x 1\nb: *x\n", {}, ["/a"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/a.json", "json"),
        ("/x/A.YAML", "yaml"),
        ("docker-compose.yml", "yaml"),
        ("pyproject.toml", "toml"),
        ("tsconfig.base.json", "jsonc"),
        ("/p/.vscode/settings.json", "jsonc"),
        ("x.jsonc", "jsonc"),
        ("Pipfile", "toml"),
    ],
)
def test_the_format_is_known_from_the_name(path, expected):
    assert format_of(path) == expected
    assert format_of(path, "toml") == "toml"


@pytest.mark.parametrize(
    ("path", "given"), [("a.conf", ""), ("json", ""), ("a.json", "ini"), ("a.json5", "")]
)
def test_a_format_that_is_not_known_is_misuse(path, given):
    with pytest.raises(Misuse) as caught:
        format_of(path, given)

    assert "toml" in caught.value.hint


def test_yaml_that_old_and_new_readers_understand_differently_keeps_its_spelling():
    new = edit("yaml", b"a: yes\nb: 0755\nc: 1_000\nd: 1:30\nx: 1\n", {"/x": 2})

    assert new == b"a: yes\nb: 0755\nc: 1_000\nd: 1:30\nx: 2\n"


def test_a_nest_of_aliases_is_not_unfolded():
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))

    assert edited("yaml", text + "x: 1\n", {"/x": 2}) == text + "x: 2\n"


def test_toml_values_are_what_tomllib_reads():
    new = edit("toml", b"", {"/a": {"b": [1, {"c": "x"}], "d": [{"e": 1}, {"e": 2}]}, "/f": 1.5})

    assert tomllib.loads(new.decode()) == {"a": {"b": [1, {"c": "x"}], "d": [{"e": 1}, {"e": 2}]}, "f": 1.5}
