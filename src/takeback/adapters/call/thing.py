"""What a call is about: said by its action, or told from the names in its arguments and its result."""

import json
import re
from typing import Any, cast

from takeback.adapters.call.action import Action
from takeback.errors import Misuse
from takeback.model.effect import Effect

_THING = "thing"
# Names of what tells one thing from another.
_TELLING = re.compile(
    r"(^|_)(id|key|name|ref|reference|number|uuid|url|uri|path|email|mail|customer|user|account|target|to|host|"
    r"recipient|resource|bucket|table|order|order_no|slug|sku)$",
    re.IGNORECASE,
)
_MADE_UP = re.compile(r"^[A-Za-z0-9_:-]{12,}$")  # an id that a server chose


def about(action: Action, arguments: dict[str, Any]) -> dict[str, Any]:
    """For the change: the resource that the action names. Calls of any action with the same one know of each other."""
    if not action.terms.resource:
        return {}
    try:
        name = action.terms.resource.format(**arguments)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise Misuse(
            f"resource={action.terms.resource!r} of {action.name} does not fit its arguments: {error}.",
            hint="Name arguments of the call in braces, for example resource='customers/{customer}'.",
        ) from None
    return {_THING: name if "://" in name else f"thing://{name}"}


def thing_of(args: dict[str, Any]) -> str:
    return args.get(_THING, "")


def may_be_one(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two calls of one action, each as its arguments and its result, may have changed the same thing: nothing
    in them names two different ones."""
    return not any(_told_apart(mine, its) for mine, its in zip(one, other, strict=True))


def _told_apart(one: Any, other: Any, name: str = "") -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        mine, its = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return any(_told_apart(mine[key], its[key], key) for key in mine.keys() & its.keys())
    if isinstance(one, (dict, list)) or isinstance(other, (dict, list)) or one == other:
        return False
    if isinstance(one, str) and isinstance(other, str) and _MADE_UP.match(one) and _MADE_UP.match(other):
        return True
    return bool(_TELLING.search(name))


def result_of(effect: Effect) -> Any:
    """What the call returned."""
    text = effect.receipt.get("result")
    return json.loads(text) if text is not None else None


def arguments_of(effect: Effect) -> dict[str, Any]:
    return json.loads(effect.change.args["arguments"])
