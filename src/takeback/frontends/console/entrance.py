"""How someone comes in: a token that works once, an account, or a proxy that vouches; and how often one may try."""

import getpass
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from typing import NamedTuple

from takeback.errors import Denied, Unavailable
from takeback.frontends.console.accounts import Accounts
from takeback.frontends.console.visitor import Role, Visitor
from takeback.model.person import KnownBy, Person

IDLE_SECONDS = 12 * 3600
LONGEST_SECONDS = 7 * 24 * 3600
_FREE_TRIES = 5
_LONGEST_WAIT = 900
_MOST_NAMES = 10_000  # whose failures are remembered


class _SignedIn(NamedTuple):
    visitor: Visitor
    since: float
    seen: float


class Tries:
    """Failed tries by name. After a few each failure doubles the wait."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def refuse_early(self, *names: str) -> None:
        wait = max((self._failed.get(name, (0, 0.0))[1] for name in names), default=0.0) - self._clock()
        if wait > 0:
            raise Unavailable(
                f"Too many failed tries. The next one is possible in {int(wait) + 1} seconds.",
                hint="Nothing was changed.",
            )

    def failed(self, *names: str) -> None:
        for name in names:
            count = self._failed.pop(name, (0, 0.0))[0] + 1
            wait = min(2.0 ** (count - _FREE_TRIES), _LONGEST_WAIT) if count >= _FREE_TRIES else 0.0
            self._failed[name] = (count, self._clock() + wait)
        while len(self._failed) > _MOST_NAMES:
            del self._failed[next(iter(self._failed))]

    def worked(self, *names: str) -> None:
        for name in names:
            self._failed.pop(name, None)


class Entrance:
    """Sessions live in the memory of this process: a restart of the console ends all of them."""

    def __init__(
        self,
        clock: Callable[[], float],
        accounts: Accounts | None = None,
        by_proxy: bool = False,
        is_apart: bool = True,
    ) -> None:
        """`is_apart`: the console works as another user than the agents, so that they cannot change its accounts."""
        self.accounts = accounts
        self.by_proxy = by_proxy
        self._known_by = KnownBy.LOGIN if is_apart else KnownBy.NOTHING
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: set[bytes] = set()
        self._sessions: dict[str, _SignedIn] = {}
        self.tries = Tries(clock)

    @property
    def takes_tokens(self) -> bool:
        return self.accounts is None and not self.by_proxy

    def new_token(self) -> str:
        """It opens the console once."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens.add(_digest(token))
        return token

    def enter(self, token: str, peer: str) -> str:
        """The cookie for someone who has the token. Any program of the same user could have read it."""
        with self._lock:
            self.tries.refuse_early(peer)
            found = _digest(token)
            if found not in self._tokens:
                self.tries.failed(peer)
                raise Denied(
                    "This link does not open the console: it was used already, or is not of this console.",
                    hint="The terminal that runs `takeback console` shows a new link after each use.",
                )
            self._tokens.discard(found)
            self.tries.worked(peer)
        return self._begin(Person(_user(), KnownBy.NOTHING, "a link of the console"), Role.OPERATOR)

    def log_in(self, name: str, password: str, peer: str) -> str:
        """The cookie for someone who has an account. Passwords are tried one after the other, so that many at once
        cannot wear the machine out."""
        assert self.accounts is not None
        with self._lock:
            self.tries.refuse_early(peer, f"account {name}")
            role = self.accounts.role_of(name, password)
            if role is None:
                self.tries.failed(peer, f"account {name}")
                raise Denied("The name or the password is wrong.", hint="Nothing was changed.")
            self.tries.worked(peer, f"account {name}")
        return self._begin(Person(name, self._known_by, "account of the console"), role)

    def vouched(self, name: str) -> str:
        """The cookie for someone of whom the proxy says who it is."""
        role = self.accounts.role_without_password(name) if self.accounts else Role.VIEWER
        return self._begin(Person(name, self._known_by, "login at the proxy"), role)

    def _begin(self, person: Person, role: Role) -> str:
        cookie, now = secrets.token_urlsafe(32), self._clock()
        key = _digest(cookie).hex()
        with self._lock:
            for old in [one for one, session in self._sessions.items() if self._is_over(session, now)]:
                del self._sessions[old]
            visitor = Visitor(person, role, key, secrets.token_urlsafe(24))
            self._sessions[key] = _SignedIn(visitor, now, now)
        return cookie

    def visitor_of(self, cookie: str) -> Visitor | None:
        if not cookie:
            return None
        key, now = _digest(cookie).hex(), self._clock()
        with self._lock:
            found = self._sessions.get(key)
            if found is None:
                return None
            if self._is_over(found, now) or not self._has_account(found.visitor):
                del self._sessions[key]
                return None
            self._sessions[key] = found._replace(seen=now)
        return found.visitor

    def is_in(self, session: str) -> bool:
        """Without counting as a sign of life."""
        with self._lock:
            found = self._sessions.get(session)
            return found is not None and not self._is_over(found, self._clock())

    def _has_account(self, visitor: Visitor) -> bool:
        """Who lost the account, or has another role now, signs in again."""
        if self.accounts is None or self.by_proxy:
            return True
        return self.accounts.roles().get(visitor.person.name) is visitor.role

    def leave(self, visitor: Visitor) -> None:
        with self._lock:
            self._sessions.pop(visitor.session, None)

    @staticmethod
    def _is_over(session: _SignedIn, now: float) -> bool:
        return now - session.seen > IDLE_SECONDS or now - session.since > LONGEST_SECONDS


def same(one: str, other: str) -> bool:
    """Takes equally long wherever they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        import os

        return f"uid {os.getuid()}"
