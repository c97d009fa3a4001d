"""The house rules find what they forbid."""

import ast
from collections.abc import Mapping

import pytest

from tools import check_house_rules as rules


def _house(sources: Mapping[str, str]) -> dict[str, rules.Module]:
    return {
        name: rules.Module(name, source.count("\n") + 100, ast.parse(source), False)
        for name, source in sources.items()
    }


TYPED = {"takeback.model.change": "class UndoTerms:\n    partial: bool\nclass Facts:\n    others: bool"}


@pytest.mark.slow  # `make check` asks the same each time
def test_the_house_as_it_is_keeps_them() -> None:
    assert list(rules.about_modules(rules.modules())) == []


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (
            {"takeback.a": "from takeback.b import x", "takeback.b": "def f():\n    from takeback import a"},
            "import circle: ",
        ),
        (
            {
                "takeback.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import takeback.b",
                "takeback.b": "import takeback.a",
            },
            "import circle: ",
        ),
        (
            {"takeback.a": "class Place: ...", "takeback.b": "class Place: ..."},
            "class Place means several things: takeback.a, takeback.b.",
        ),
        ({"takeback.noting": ""}, "takeback.noting: name the noun, not what is being done."),
        (
            {"takeback.a": "def f():\n" + "    x = 1\n" * rules.LONGEST_FUNCTION},
            "takeback.a:1: f has 61 lines",
        ),
        (
            {"takeback.a": "class A: ...\nclass B(A): ...\nclass C(B): ..."},
            "takeback.a: class C stands on B;",
        ),
        (
            {"takeback.a": "class A: ...\nclass B: ...\nclass C(A, B): ..."},
            "takeback.a: class C stands on A and B;",
        ),
        (
            {"takeback.a": "def f(change):\n    return change.adapter == 'file'"},
            "takeback.a:2: ask `traits_of(change)`",
        ),
        (
            {"takeback.a": "def f(url):\n    return ENGINES.get(url) != 'sqlite'"},
            "takeback.a:2: ask `traits_of(change)`",
        ),
        (
            {"takeback.a": "def f(adapter):\n    return isinstance(adapter, TreeAdapter)"},
            "takeback.a:2: ask `traits_of(change)`",
        ),
        (
            {**TYPED, "takeback.a": "def f(x):\n    return x.args['partial']"},
            "takeback.a:2: 'partial' is a field",
        ),
        (
            {**TYPED, "takeback.a": "def f(x):\n    return x.args.get(PARTIAL)"},
            "takeback.a:2: 'partial' is a field",
        ),
        (
            {**TYPED, "takeback.a": "def f(x):\n    return 'others' in x.args"},
            "takeback.a:2: 'others' is a field",
        ),
    ],
    ids=[
        "a lazy circle",
        "a circle of types",
        "a class twice",
        "a participle",
        "a long function",
        "a tower",
        "two bases",
        "a name of an adapter",
        "a name of an engine",
        "a class of an adapter",
        "a term by its key",
        "a term by a constant",
        "a fact by its key",
    ],
)
def test_what_breaks_them_is_named(sources: Mapping[str, str], said: str) -> None:
    house = _house({"takeback": "", **sources})
    (found,) = rules.about_modules(house)
    assert found.startswith(said)


def test_a_crumb_is_named_with_the_file_that_it_belongs_to() -> None:
    house = _house({"takeback.large": "from takeback.crumb import x", "takeback.crumb": "x = 1"})
    house["takeback.crumb"] = house["takeback.crumb"]._replace(lines=12)
    (found,) = rules.about_modules(house)
    assert found == "takeback.crumb: 12 lines for takeback.large alone; put them there."


def test_too_many_files_are_counted() -> None:
    house = _house({f"takeback.a{number}": "" for number in range(rules.MOST_FILES + 1)})
    (found,) = rules.about_modules(house)
    assert found.startswith(f"src: {rules.MOST_FILES + 1} files;")
