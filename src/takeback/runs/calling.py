"""The part of a run that calls functions which act on the world outside."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.runs.names import names_of
from takeback.runs.verbs import Options

if TYPE_CHECKING:
    from takeback.adapters.call.action import Action
    from takeback.adapters.call.adapter import CallAdapter
    from takeback.engine.parts import Parts


class Calling(ABC):
    _parts: "Parts"

    @abstractmethod
    def _change(self, build: Callable[[], Change], options: Options) -> Effect | None: ...

    @abstractmethod
    def _outlast(self, seconds: float) -> None:
        """The lease is held for that long from now."""

    def call(
        self,
        action: "Action",
        /,
        *arguments: Any,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        **named: Any,
    ) -> Any:
        """Call an action; what it returned, as JSON gives it back. Asked again with the same key it is not called
        again: the recorded result is returned. `key` is given to the function, and to its probe; without one it is
        made from the run, the place in it, and what is asked for."""
        from takeback.adapters.call.adapter import call_change, result_of

        adapter = self._call_adapter(action)
        expects = _expectation(action, arguments, named, key)
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"A key is text, not {key!r}.", hint='For example key="order-42".')

        def build() -> Change:
            adapter.actions.see(action)
            self._outlast(action.terms.timeout)
            return call_change(action, arguments, named)

        effect = self._change(build, Options(key, names_of(needs), (), expects))
        assert effect
        return result_of(effect)

    def _call_adapter(self, action: "Action") -> "CallAdapter":
        from takeback.adapters.call.action import Action

        if not isinstance(action, Action):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                f"{getattr(action, '__name__', action)!r} is no action.",
                hint="Put @takeback.action(undo=…) above the function.",
            )
        return cast("CallAdapter", self._parts.adapters["call"])


def _expectation(
    action: "Action", given: tuple[Any, ...], named: dict[str, Any], key: str
) -> Callable[[], bool] | None:
    expects = action.terms.expects
    if expects is None:
        return None
    from takeback.adapters.call.signature import bound, fitting

    def holds() -> bool:
        return bool(expects(**fitting(expects, {"key": key, **bound(action.function, given, named)})))

    holds.__name__ = getattr(expects, "__name__", "the precondition")
    return holds
