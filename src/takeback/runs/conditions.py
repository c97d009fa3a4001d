"""`when` of a rule, by CEL (the Common Expression Language): an extra."""

from collections.abc import Mapping
from typing import Any

from takeback.errors import Refused
from takeback.policy.decide import Condition, no_conditions


def compiled(text: str) -> Condition:
    """Refuses without the extra, and what is no expression."""
    try:
        import cel  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError:
        return no_conditions(text)
    module: Any = cel
    try:
        program = module.compile(text)
    except ValueError as error:
        raise Refused(
            f"The condition {text!r} is no CEL expression: {str(error).splitlines()[0]}.",
            hint="Nothing was changed. For example when = \"files > 10 && agent != 'deployer'\".",
        ) from None

    def holds(facts: Mapping[str, Any]) -> bool:
        found = program.execute(dict(facts))
        if not isinstance(found, bool):
            raise TypeError("a condition is true or false")
        return found

    return holds
