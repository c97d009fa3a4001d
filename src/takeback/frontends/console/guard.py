"""What stands before every page: which hosts and origins may ask, how much they may send, and what a browser may do
with the answer. Nothing changes on GET."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from takeback.frontends.console.entrance import Entrance, same

MOST_BYTES = 64 << 10  # of a form
_MOST_FIELDS = 2_000
OPEN_TO_ALL = ("/static/", "/enter", "/login")  # the rest is for those who are signed in
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer a browser would not say where a form comes from
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), clipboard-read=()",
}


class ConsolePlace(NamedTuple):
    """Where the console is reached."""

    hosts: frozenset[str]  # as the Host header names it
    origins: frozenset[str]
    cookie: str  # its name; cookies of one host do not know ports
    is_secure: bool = False  # over TLS
    proxy_secret: str = ""  # the proxy sends it with each request
    trusts_socket: bool = False  # only the proxy can reach the Unix socket
    user_header: str = ""  # in which the proxy says who it is
    metrics_token: str = ""  # for a program that collects the metrics


class ConsoleGuard:
    def __init__(self, app: ASGIApp, place: ConsolePlace, entrance: Entrance) -> None:
        self._app = app
        self._place = place
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = _headers(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._added(scope["path"], message["headers"])]
            await send(message)

        refused = self._refusal(scope["method"], headers)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        state = scope.setdefault("state", {})
        state["peer"] = (scope.get("client") or ("local", 0))[0]
        state["visitor"] = self._entrance.visitor_of(_cookie(headers, self._place.cookie))
        state["user"] = self._named_by_proxy(headers)
        state["place"] = self._place
        state["form"] = {}
        if scope["method"] == "POST":
            form = await self._form(headers, receive)
            refused = form if isinstance(form, Response) else self._without_token(scope, form)
            if refused is not None:
                await refused(scope, receive, guarded)
                return
            state["form"] = form
        await self._app(scope, receive, guarded)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> Response | None:
        if headers.get("host", "").lower() not in self._place.hosts:
            return _no(421, "This address is not one of the console. Open it by the address that it printed.")
        if method not in ("GET", "HEAD", "POST"):
            return _no(405, "Only GET and POST are understood.")
        if method == "POST":
            origin = headers.get("origin")
            same_origin = headers.get("sec-fetch-site") == "same-origin"
            if origin not in self._place.origins and not (origin is None and same_origin):
                return _no(403, "This form does not come from a page of the console. Nothing was changed.")
        if self._place.proxy_secret and not same(
            headers.get("x-takeback-proxy-secret", ""), self._place.proxy_secret
        ):
            return _no(403, "This request does not come through the proxy of the console.")
        return None

    def _named_by_proxy(self, headers: Mapping[str, str]) -> str:
        """A header that anyone can send counts only if no one but the proxy can reach the console."""
        place = self._place
        if not place.user_header or not (place.trusts_socket or place.proxy_secret):
            return ""
        name = headers.get(place.user_header.lower(), "").strip()
        return name if name.isprintable() and len(name) <= 100 else ""

    def _without_token(self, scope: Scope, form: Mapping[str, Sequence[str]]) -> Response | None:
        visitor = scope["state"]["visitor"]
        if visitor is None or scope["path"].startswith(OPEN_TO_ALL):
            return None
        if not same("".join(form.get("csrf", ())), visitor.csrf):
            return _no(403, "This form is not of your session. Nothing was changed; load the page again.")
        return None

    async def _form(self, headers: Mapping[str, str], receive: Receive) -> dict[str, list[str]] | Response:
        if headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            return _no(415, "Only a form can be sent here. Nothing was changed.")
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _no(400, "The form was not sent to its end.")
            body += message.get("body", b"")
            if len(body) > MOST_BYTES:
                return _no(413, f"A form has at most {MOST_BYTES:,} bytes. Nothing was changed.")
            if not message.get("more_body"):
                break
        try:
            return parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return _no(400, "The form cannot be read. Nothing was changed.")

    def _added(self, path: str, sent: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        added = dict(_HEADERS)
        if not any(name == b"cache-control" for name, _ in sent):
            added["cache-control"] = "max-age=3600" if path.startswith("/static/") else "no-store"
        if self._place.is_secure:
            added["strict-transport-security"] = "max-age=31536000"
        return [(name.encode(), value.encode()) for name, value in added.items()]


def _headers(scope: Scope) -> dict[str, str]:
    """Of a header that was sent twice nothing counts: two readers could take different ones."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        twice |= {name} & found.keys()
        found[name] = value.decode("latin-1")
    return {name: value for name, value in found.items() if name not in twice}


def _cookie(headers: Mapping[str, str], name: str) -> str:
    for pair in headers.get("cookie", "").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def _no(status: int, words: str) -> Response:
    return PlainTextResponse(f"{words}\n", status)
