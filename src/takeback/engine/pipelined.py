"""A journal that writes the outcome of one effect together with the intent of the next: where the next is known, an
effect takes one durable commit instead of two."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from takeback.adapters.protocol import Adapter
from takeback.engine.settle import unrecorded
from takeback.errors import InDoubt, LeaseLost, Refused, ServerUnreachable, TakebackError, Unavailable
from takeback.model.change import Change
from takeback.model.database import Database, resource_of
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.record import Draft, Kind, Record
from takeback.model.run import Lease
from takeback.storage.protocols import Journal, Query


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


class PipelinedJournal:
    """The same journal; a single `done` is held until the next append. It must not be reported before `flush`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lease: Lease | None = None
        self._held: list[Draft] = []
        self._intended: Draft | None = None  # what the one that is held was announced as

    def append(self, lease: Lease | None, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        if len(drafts) == 1 and drafts[0].kind is Kind.DONE and not self._held:
            self._lease, self._held = lease, list(drafts)
            return ()
        if lease != self._lease:
            self.flush()
        held, self._held = self._held, []
        try:
            records = self._journal.append(lease, [*held, *drafts])[len(held) :]
            self._intended = drafts[-1]
            return records
        except InDoubt as error:
            if not held:
                raise
            # Both or neither are written; recovery finds out, and a second `done` would be one too many.
            raise self._unrecorded(held, error) from error
        except BaseException:
            # The new one was refused, and with it what is true of the one before.
            self._held = held
            raise

    def flush(self) -> None:
        held, self._held = self._held, []
        if not held:
            return
        try:
            self._journal.append(self._lease, held)
        except LeaseLost:
            raise
        except (Unavailable, InDoubt, Refused) as error:
            raise self._unrecorded(held, error) from error

    def _unrecorded(self, held: list[Draft], error: TakebackError) -> InDoubt:
        known = self._intended.body if self._intended and self._intended.effect == held[0].effect else {}
        what = known.get("summary", f"Effect {short(held[0].effect)}")
        return unrecorded(held[0].effect, f"{what} was called", error)

    def effects(self, query: Query) -> Iterator[Effect]:
        # The question for another key, before each call, does not miss the held record.
        if not query.key:
            self.flush()
        return self._journal.effects(query)

    def __getattr__(self, name: str) -> Any:
        self.flush()
        return getattr(self._journal, name)
