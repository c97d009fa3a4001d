"""Servers that do not answer are asked once: whoever has many effects to settle does not wait for each of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from takeback.adapters.protocol import Adapter
from takeback.errors import InDoubt, ServerUnreachable
from takeback.model.change import Change
from takeback.model.database import Database, resource_of
from takeback.model.effect import Effect


class AskedOnce(Mapping[str, Adapter]):
    """The same adapters; what has been said of a server that did not answer is said again without asking."""

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self._adapters = adapters
        self._silent: dict[str, ServerUnreachable | InDoubt] = {}

    def __getitem__(self, name: str) -> Adapter:
        adapter = self._adapters[name]
        return cast(Adapter, _Asked(adapter, self._silent)) if adapter.traits.marks else adapter

    def __iter__(self) -> Iterator[str]:
        return iter(self._adapters)

    def __len__(self) -> int:
        return len(self._adapters)


class _Asked:
    def __init__(self, adapter: Adapter, silent: dict[str, ServerUnreachable | InDoubt]) -> None:
        self._adapter = adapter
        self._silent = silent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._adapter, name)
        return self._once(found) if callable(found) else found

    def _once(self, question: Callable[..., Any]) -> Callable[..., Any]:
        def asked(about: Any, *given: Any, **named: Any) -> Any:
            server = _server(about)
            if error := self._silent.get(server):
                raise error
            try:
                return question(about, *given, **named)
            except (ServerUnreachable, InDoubt) as error:
                if isinstance(error, ServerUnreachable) or self._adapter.traits.calls:
                    self._silent[server] = error
                raise

        return asked


def _server(about: Effect | Change | Database) -> str:
    if isinstance(about, Database):
        resource = resource_of(about)
    else:
        resource = about.change.resource if isinstance(about, Effect) else about.resource
    scheme, _, rest = resource.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host or slash + path}"
