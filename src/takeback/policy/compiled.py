"""A layer as JSON, so that a policy file need not be parsed again for every command."""

from typing import Any

from takeback.policy.rules import Budget, Case, Hours, Layer, Level, Limit, Pattern, Rule, Test

VERSION = 1  # of what is below; another one is parsed again


def layer_to_json(layer: Layer) -> dict[str, Any]:
    """NamedTuples are written as lists."""
    return {"version": VERSION, "layer": list(layer._replace(trusted=True))}


def layer_from_json(data: Any) -> Layer | None:
    """None for one that another version has written."""
    if not isinstance(data, dict) or data.get("version") != VERSION:  # pyright: ignore[reportUnknownMemberType]
        return None
    listed: Any = data["layer"]  # pyright: ignore[reportUnknownVariableType]
    layer = Layer(*listed)
    return layer._replace(
        level=Level(layer.level),
        rules=tuple(map(_rule, layer.rules)),
        budgets=tuple(Budget(_rule(one[0]), one[1], one[2]) for one in layer.budgets),
        labels=tuple((name, tuple(Pattern(*each) for each in patterns)) for name, patterns in layer.labels),
        settings=tuple((name, value) for name, value in layer.settings),
        cases=tuple(Case(*one) for one in layer.cases),
    )


def _rule(data: Any) -> Rule:
    rule = Rule(*data)
    return rule._replace(
        tests=tuple(Test(field, tuple(Pattern(*one) for one in patterns)) for field, patterns in rule.tests),
        limits=tuple(Limit(*one) for one in rule.limits),
        hours=tuple(Hours(*one) for one in rule.hours),
        asks=(rule.asks[0], tuple(rule.asks[1]), rule.asks[2], rule.asks[3]) if rule.asks else None,
        excepted=tuple(rule.excepted),
    )
