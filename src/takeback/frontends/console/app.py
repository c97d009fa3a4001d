"""The console as an application: which address is which page, and who may ask for it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import takeback
from takeback.api import now
from takeback.audit.metrics import CONTENT_TYPE, metrics
from takeback.errors import Denied, Misuse, Refused, TakebackError, Unavailable
from takeback.frontends.console import effect_page, people_page, runs_page, store_page, timeline, undo_page
from takeback.frontends.console.entrance import same
from takeback.frontends.console.guard import ConsoleGuard, ConsolePlace
from takeback.frontends.console.live import News
from takeback.frontends.console.paper import HERE, environment
from takeback.frontends.console.visit import Answer, Console, Redirected, Shown, Visit
from takeback.frontends.console.visitor import Role, Visitor

_V, _A, _O = Role.VIEWER, Role.APPROVER, Role.OPERATOR
GETS: Mapping[str, Callable[[Visit], Answer]] = {
    "/": timeline.page,
    "/effect/{id}": effect_page.page,
    "/effect/{id}/part": effect_page.part,
    "/runs": runs_page.runs,
    "/run/{id}": runs_page.run,
    "/prompt/{id}": runs_page.prompt,
    "/sessions": runs_page.conversations,
    "/boxes": runs_page.boxes,
    "/undo": undo_page.page,
    "/job/{id}": undo_page.job_page,
    "/approvals": people_page.approvals,
    "/approval/{id}": people_page.request_page,
    "/doubts": people_page.doubts,
    "/dead": people_page.dead,
    "/rehearsals": store_page.rehearsals,
    "/store": store_page.page,
    "/store/figures": store_page.figures,
    "/store/proof": store_page.proof,
}
POSTS: Mapping[str, tuple[Role, Callable[[Visit], Answer]]] = {
    "/undo": (_O, undo_page.carry_out),
    "/effect/{id}": (_O, effect_page.carry_out),
    "/approval/{id}": (_A, people_page.decide),
    "/doubt/{id}": (_O, people_page.settle),
    "/dead": (_O, people_page.recover),
    "/stop": (_A, people_page.stop),
    "/lift": (_O, people_page.lift),
}


class _Pages(NamedTuple):
    console: Console
    news: News
    render: Callable[[str, Mapping[str, Any], Visitor | None], str]


def application(console: Console, place: ConsolePlace, came_in: Callable[[], None]) -> tuple[Starlette, News]:
    """`came_in` is called when someone has used a link."""
    templates = environment()
    news = News(console.tb.store.journal.newest, console.jobs)

    def render(name: str, data: Mapping[str, Any], visitor: Visitor | None) -> str:
        around: dict[str, Any] = {"visitor": visitor, "csrf": visitor.csrf if visitor else "", "Role": Role}
        if visitor and "_part" not in name:
            around |= timeline.around(console.tb)
        return templates.get_template(name).render(**around, **data)

    pages = _Pages(console, news, render)
    routes = [
        *(Route(path, _shown(pages, page, _V), methods=["GET"]) for path, page in GETS.items()),
        *(Route(path, _shown(pages, page, role), methods=["POST"]) for path, (role, page) in POSTS.items()),
        Route("/enter", _enter_page(pages), methods=["GET"]),
        Route("/enter", _enter(pages, came_in), methods=["POST"]),
        Route("/login", _login_page(pages), methods=["GET"]),
        Route("/login", _log_in(pages), methods=["POST"]),
        Route("/leave", _leave(pages), methods=["POST"]),
        Route("/events", _events(pages), methods=["GET"]),
        Route("/metrics", _metrics(pages), methods=["GET"]),
        Route("/job/{id}/events", _job_events(pages), methods=["GET"]),
        Mount("/static", StaticFiles(directory=f"{HERE}/static")),
    ]
    guard = Middleware(ConsoleGuard, place=place, entrance=console.entrance)
    return Starlette(routes=routes, middleware=[guard]), news


def _shown(
    pages: _Pages, page: Callable[[Visit], Answer], needed: Role
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visitor: Visitor | None = request.state.visitor
        if visitor is None:
            return _unknown(pages, request)
        if not visitor.role.may(needed):
            error = Denied(
                f"That needs the role {needed.value}; you are {visitor.role.value}.",
                hint="Nothing was changed. Ask someone who has that role.",
            )
            return await run_in_threadpool(_page, pages, _told(error), visitor)
        is_part = request.headers.get("hx-request") == "true"
        query = {name: request.query_params.getlist(name) for name in request.query_params}
        visit = Visit(pages.console, visitor, request.path_params, query, request.state.form, is_part)
        return await run_in_threadpool(_answered, pages, page, visit)

    return endpoint


def _answered(pages: _Pages, page: Callable[[Visit], Answer], visit: Visit) -> Response:
    try:
        answer = page(visit)
    except TakebackError as error:
        answer = _told(error)
    if isinstance(answer, Redirected):
        return RedirectResponse(answer.to, 303)
    return _page(pages, answer, visit.visitor)


def _page(pages: _Pages, answer: Shown, visitor: Visitor | None) -> Response:
    return HTMLResponse(pages.render(answer.template, answer.data, visitor), answer.status)


def _told(error: TakebackError) -> Shown:
    families = ((Misuse, 400), (Denied, 403), (Refused, 409), (Unavailable, 503))
    status = next((number for family, number in families if isinstance(error, family)), 500)
    return Shown("error.html", {"error": error, "kind": type(error).__name__}, status)


# Coming in and leaving.


def _unknown(pages: _Pages, request: Request) -> Response:
    """Someone who is not signed in."""
    entrance = pages.console.entrance
    if entrance.by_proxy and request.state.user and request.method == "GET":
        response: Response = RedirectResponse(request.url.path, 303)
        return _with_cookie(response, entrance.vouched(request.state.user), request.state.place)
    if request.headers.get("hx-request") == "true" or request.method != "GET":
        return PlainTextResponse("You are not signed in any more. Nothing was changed.\n", 401)
    template = "enter.html" if entrance.takes_tokens else "login.html"
    data = {"token": "", "said": "", "by_proxy": entrance.by_proxy}
    return HTMLResponse(pages.render(template, data, None), 401)


def _enter_page(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    """Shows the button that uses the token. Looking at the link uses nothing: programs look at links, too."""

    async def endpoint(request: Request) -> Response:
        token = request.query_params.get("token", "")[:200]
        return HTMLResponse(pages.render("enter.html", {"token": token, "said": ""}, None))

    return endpoint


def _enter(pages: _Pages, came_in: Callable[[], None]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        entrance = pages.console.entrance
        token = "".join(request.state.form.get("token", ()))
        try:
            if not entrance.takes_tokens:
                raise Denied("This console has accounts; a link does not open it.", hint="Sign in.")
            cookie = entrance.enter(token, request.state.peer)
        except TakebackError as error:
            status = 429 if isinstance(error, Unavailable) else 403
            data = {"token": "", "said": f"{error} {error.hint or ''}"}
            return HTMLResponse(pages.render("enter.html", data, None), status)
        came_in()
        return _with_cookie(RedirectResponse("/", 303), cookie, request.state.place)

    return endpoint


def _login_page(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if pages.console.entrance.takes_tokens:
            return RedirectResponse("/enter", 303)
        data = {"said": "", "by_proxy": pages.console.entrance.by_proxy}
        return HTMLResponse(pages.render("login.html", data, None))

    return endpoint


def _log_in(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        entrance, form = pages.console.entrance, request.state.form
        name, password = ("".join(form.get(field, ())) for field in ("name", "password"))
        try:
            if entrance.accounts is None or entrance.by_proxy:
                raise Denied("This console has no accounts of its own.")
            if len(name) > 100 or len(password) > 1_000:
                raise Denied("The name or the password is wrong.")
            cookie = await run_in_threadpool(entrance.log_in, name, password, request.state.peer)
        except TakebackError as error:
            status = 429 if isinstance(error, Unavailable) else 403
            data = {"said": str(error), "by_proxy": entrance.by_proxy}
            return HTMLResponse(pages.render("login.html", data, None), status)
        return _with_cookie(RedirectResponse("/", 303), cookie, request.state.place)

    return endpoint


def _leave(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if request.state.visitor:
            pages.console.entrance.leave(request.state.visitor)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(request.state.place.cookie)
        return response

    return endpoint


def _with_cookie(response: Response, cookie: str, place: ConsolePlace) -> Response:
    response.set_cookie(
        place.cookie, cookie, httponly=True, samesite="strict", secure=place.is_secure, path="/"
    )
    return response


# For programs.


def _metrics(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    """For someone who is signed in, or a program that has the token."""

    def collected() -> Response:
        try:
            return Response(
                metrics(pages.console.tb.store, now(), takeback.__version__), media_type=CONTENT_TYPE
            )
        except TakebackError as error:
            return PlainTextResponse(f"{error}\n", 503)

    async def endpoint(request: Request) -> Response:
        token: str = request.state.place.metrics_token
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if request.state.visitor is None and not (token and same(given, token)):
            return PlainTextResponse("Metrics need a session, or the token of --metrics-token.\n", 401)
        return await run_in_threadpool(collected)

    return endpoint


# Streams.


def _events(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if request.state.visitor is None:
            return PlainTextResponse("You are not signed in any more.\n", 401)
        still_in = _still_in(pages, request)
        return pages.news.stream(pages.news.journal(still_in)) or PlainTextResponse("Too many.\n", 503)

    return endpoint


def _job_events(pages: _Pages) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        job = pages.console.jobs.get(request.path_params["id"])
        if request.state.visitor is None:
            return PlainTextResponse("You are not signed in any more.\n", 401)
        if job is None:
            return PlainTextResponse("There is no such job.\n", 404)
        still_in = _still_in(pages, request)
        return pages.news.stream(pages.news.job(job, still_in)) or PlainTextResponse("Too many.\n", 503)

    return endpoint


def _still_in(pages: _Pages, request: Request) -> Callable[[], bool]:
    """A stream ends with the session that asked for it. Listening does not keep a session alive."""
    session = request.state.visitor.session
    return lambda: pages.console.entrance.is_in(session)
