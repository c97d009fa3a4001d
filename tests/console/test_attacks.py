"""The console and those who should not get in, or get further than they may."""

import re
from pathlib import Path

import pytest

import takeback
from takeback.api import Takeback
from takeback.frontends.console.app import GETS, POSTS
from takeback.frontends.console.guard import MOST_BYTES
from takeback.model.effect import State
from takeback.model.record import Kind
from tests.console.conftest import PASSWORD, Client, Running, Serve
from tests.world import World

Edited = list[takeback.Effect]
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'&{{7*7}}\u202egpj.exe\u200b\x1b[31m"


def standing(tb: Takeback, effect: takeback.Effect) -> State:
    return tb.effect(effect.id).state


# The link and the session.


def test_a_link_opens_the_console_once(console: Running) -> None:
    link = console.link
    assert console.client().get("/").status == 200

    second = console.stranger()

    assert second.enter(link).status == 403
    assert second.get("/").status == 401
    assert console.link != link  # the terminal shows another one


def test_looking_at_a_link_does_not_use_it(console: Running) -> None:
    path = console.link.removeprefix(console.address)
    for _ in range(3):
        assert console.stranger().get(path).status == 200

    assert console.client().get("/").status == 200


def test_nothing_is_shown_without_a_session(console: Running, edited: Edited) -> None:
    for path in (*GETS, "/events", "/job/x/events"):
        got = console.stranger().get(path.replace("{id}", edited[0].id))

        assert got.status == 401, path
        assert "app.toml" not in got.text and "enable TLS" not in got.text


def test_the_cookie_is_not_for_scripts_nor_for_other_sites(console: Running) -> None:
    client = console.stranger()
    cookie = client.enter(console.link).headers["set-cookie"]

    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert f"takeback-{console.address.rpartition(':')[2]}=" in cookie


def test_a_cookie_is_worth_nothing_after_signing_out(console: Running) -> None:
    client = console.client()
    cookie = client.cookie

    client.post("/leave")

    client.cookie = cookie
    assert client.get("/").status == 401


def test_a_restart_of_the_console_ends_every_session(console: Running, serving: Serve) -> None:
    client = console.client()
    again = serving()
    client.address = again.address
    client.cookie = re.sub(r"takeback-\d+", f"takeback-{again.address.rpartition(':')[2]}", client.cookie)

    assert client.get("/").status == 401


def test_guessing_a_link_is_slowed_down(console: Running) -> None:
    client = console.stranger()
    statuses = [client.post("/enter", {"token": f"guess {n}"}).status for n in range(8)]

    assert statuses[:4] == [403] * 4
    assert statuses[-1] == 429


def test_guessing_a_password_is_slowed_down_for_the_account_and_others_get_in(team: Running) -> None:
    client = team.stranger()
    statuses = [client.log_in("operator", f"guess number {n}").status for n in range(8)]

    assert statuses[:4] == [403] * 4
    assert statuses[-1] == 429
    assert client.log_in("operator").status == 429  # the right one, too, until the time is over


def test_an_unknown_name_and_a_wrong_password_get_the_same_answer(team: Running) -> None:
    wrong, unknown = (team.stranger().log_in(name, "not the password") for name in ("operator", "nemo"))

    assert (wrong.status, wrong.words) == (unknown.status, unknown.words)


def test_who_lost_the_account_is_out_at_once(serving: Serve, tmp_path: Path) -> None:
    from takeback.frontends.console.accounts import Accounts
    from takeback.frontends.console.visitor import Role

    accounts = Accounts(str(tmp_path / "accounts.json"))
    accounts.put("bea", Role.OPERATOR, PASSWORD)
    accounts.put("ann", Role.OPERATOR, PASSWORD)
    client = serving(accounts=accounts.place).stranger()
    client.log_in("bea")
    assert client.get("/").status == 200

    accounts.remove("bea")

    assert client.get("/").status == 401


# Other sites.


def test_a_name_that_someone_let_lead_here_is_refused(console: Running) -> None:
    client = console.client()
    for host in ("evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example"):
        got = client.get("/", Host=host)
        assert got.status == 421, host
        assert "app" not in got.text.replace("address", "")


def test_a_form_of_another_site_changes_nothing(console: Running, tb: Takeback, edited: Edited) -> None:
    client = console.client()
    plan = client.get(f"/undo?effect={edited[2].id}")

    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"):
        assert client.post("/undo", plan.fields, Origin=origin).status == 403, origin
    assert standing(tb, edited[2]) is State.DONE


def test_a_form_without_the_word_of_the_session_changes_nothing(
    console: Running, tb: Takeback, edited: Edited
) -> None:
    client, other = console.client(), console.client()
    plan = client.get(f"/undo?effect={edited[2].id}")

    for csrf in ("", other.csrf, client.csrf[:-1]):
        assert client.post("/undo", {**plan.fields, "csrf": csrf}).status == 403
    assert standing(tb, edited[2]) is State.DONE


def test_no_address_changes_anything_by_being_looked_at(
    console: Running, tb: Takeback, edited: Edited
) -> None:
    client = console.client()
    digest = client.get(f"/undo?effect={edited[2].id}").fields["digest"]
    before = tb.store.journal.newest()
    query = f"?effect={edited[2].id}&digest={digest}&csrf={client.csrf}&deed=pin&what=all:&decision=approve"

    for path in POSTS:
        client.get(path.replace("{id}", edited[2].id) + query)

    assert tb.store.journal.newest() == before


def test_other_methods_are_refused(console: Running) -> None:
    client = console.client()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert client.ask(method, "/undo").status == 405, method


def test_what_a_browser_may_do_with_a_page_is_narrow(console: Running) -> None:
    headers = console.client().get("/").headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"


# Hostile agents.


def test_what_an_agent_wrote_is_no_markup_and_cannot_hide(
    console: Running, tb: Takeback, world: World
) -> None:
    with tb.run(HOSTILE, agent="<b>agent</b>") as run:
        first = run.write(world / "a<script>alert(1)<.txt", f"{HOSTILE}\nsecond\n")
        second = run.write(world / "a<script>alert(1)<.txt", f"{HOSTILE} 2\nsecond\n")
    client = console.client()

    for path in ("/", "/runs", f"/run/{first.run}", f"/effect/{second.id}", f"/undo?effect={second.id}"):
        got = client.get(path)
        assert got.status == 200, path
        assert not re.search(r"<script>|<img|<b>agent", got.text), path
        assert "\u202e" not in got.text and "\u200b" not in got.text and "\x1b" not in got.text, path
        assert "49" not in re.findall(r"onerror=alert\(1\).{0,90}", got.words), path
    assert "\\u202egpj" in client.get("/").text


def test_the_result_of_a_tool_is_no_markup(console: Running, tb: Takeback) -> None:
    @takeback.action(undo=takeback.IRREVERSIBLE("it is read"), risk="low")
    def say(words: str) -> dict[str, str]:
        return {"said": HOSTILE}

    with pytest.raises(takeback.AwaitingApproval), tb.run("say", agent="talker") as run:
        run.call(say, words=HOSTILE)
    waiting = tb.pending()

    got = console.client().get("/approvals" if waiting else "/")

    assert not re.search(r"<script>|<img", got.text)


def test_a_part_is_only_shown_of_what_the_effect_recorded(console: Running, edited: Edited) -> None:
    client = console.client()
    for target in ("file:///etc/passwd", "/etc/passwd", "file:///etc/../etc/passwd", ""):
        got = client.ask("GET", f"/effect/{edited[0].id}/part?target={target}")
        assert got.status == 400, target
        assert "root:" not in got.text


def test_no_file_outside_the_static_ones_is_served(console: Running) -> None:
    client = console.client()
    assert client.ask("GET", "/static/console.css").status == 200
    for path in (
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "/etc/passwd",
        "....//app.py",
        "..\\app.py",
        "%00",
    ):
        got = client.ask("GET", f"/static/{path}")
        assert got.status in (404, 405), path
        assert "import" not in got.text and "root:" not in got.text, path


def test_a_form_has_an_end(console: Running) -> None:
    client = console.client()

    assert client.post("/undo", {"effect": "x" * MOST_BYTES}).status == 413
    assert (
        client.ask(
            "POST", "/undo", b"{}", {"Content-Type": "application/json", "Origin": client.address}
        ).status
        == 415
    )


ODD = (
    "/?state=nonsense", "/?since=nonsense", "/?path=relative", "/?before=x", "/?run=nonesuch", "/?q=%00",
    "/?agent=%ED%A0%80", "/effect/x", "/run/x", "/prompt/x", "/job/x", "/undo", "/undo?effect=x", "/approval/x",
    "/undo?verb=x&effect=y", "/undo?verb=redo", "/undo?run=x&session=y", "/undo?on_conflict=x&effect=y",
    "/runs?skip=-1", "/effect/x/part?target=y", "/nothing", "/undo?effect=" + "x" * 5000,
)  # fmt: skip


def test_bad_input_gets_a_sentence(console: Running, edited: Edited) -> None:
    client = console.client()
    for path in ODD:
        got = client.get(path)

        assert got.status in (200, 400, 404, 409), path
        assert "Traceback" not in got.text and "Internal" not in got.text, path


# Roles.


def test_a_viewer_changes_nothing(team: Running, tb: Takeback, edited: Edited) -> None:
    client = team.stranger()
    client.log_in("viewer")
    before = tb.store.journal.newest()

    for path in POSTS:
        got = client.post(
            path.replace("{id}", edited[2].id), {"effect": edited[2].id, "what": "all:", "deed": "pin"}
        )
        assert got.status == 403, path
    assert tb.store.journal.newest() == before
    assert "Take back exactly" not in client.get(f"/undo?effect={edited[2].id}").text
    assert "Stop now" not in client.get("/").text


def test_an_approver_stops_and_does_not_take_back(team: Running, tb: Takeback, edited: Edited) -> None:
    client = team.stranger()
    client.log_in("approver")
    digest = "x" * 64

    assert client.post("/undo", {"effect": edited[2].id, "digest": digest}).status == 403
    assert client.post("/stop", {"what": "agent:deployer", "why": "too fast"}).status == 303

    (record,) = tb.store.journal.records(run="store", kinds=(Kind.STOP,))
    assert (record.body["by"], record.body["known_by"], record.body["role"]) == (
        "approver",
        "not proven",
        "approver",
    )
    assert client.post("/lift", {"stop": str(record.seq)}).status == 403


def test_the_header_of_a_proxy_counts_only_with_the_secret(serving: Serve, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    address = serving(user_header="X-Remote-User", secret_file=str(secret)).address

    def asked(**headers: str) -> int:
        client = Client(address)
        client.get("/", **headers)
        return client.get("/", **{k: v for k, v in headers.items() if k != "X-Remote-User"}).status

    given = {"X-Takeback-Proxy-Secret": "s" * 40}
    assert asked(**given, **{"X-Remote-User": "bea"}) == 200
    assert asked(**{"X-Remote-User": "bea"}) == 403
    assert asked(**given) == 401
    assert asked(**{"X-Takeback-Proxy-Secret": "s" * 39, "X-Remote-User": "bea"}) == 403


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        ({"host": "0.0.0.0"}, "others can reach"),
        ({"host": "0.0.0.0", "accounts": "x", "origins": ("http://a.example",)}, "unprotected"),
        ({"user_header": "X-User"}, "could send the header"),
        ({"host": "0.0.0.0", "user_header": "X-User"}, "could send the header"),
        ({"unix_socket": "/tmp/x"}, "not known"),
        ({"origins": ("https://a.example/path",)}, "no origin"),
        ({"certificate": "x"}, "needs its key"),
    ],
)
def test_what_would_be_open_to_others_is_refused_at_the_start(wishes: dict[str, str], why: str) -> None:
    from takeback.frontends.console.serve import ServingWishes, refuse_open

    with pytest.raises(takeback.TakebackError, match=why):
        refuse_open(ServingWishes(**wishes))


def test_accounts_that_others_can_read_are_refused(serving: Serve, tmp_path: Path) -> None:
    from takeback.frontends.console.accounts import Accounts
    from takeback.frontends.console.visitor import Role

    accounts = Accounts(str(tmp_path / "accounts.json"))
    accounts.put("bea", Role.VIEWER, PASSWORD)
    (tmp_path / "accounts.json").chmod(0o644)

    with pytest.raises(takeback.Refused, match="Other users can read"):
        accounts.roles()


def test_metrics_need_a_session_or_the_token(serving: Serve, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    console = serving(metrics_file=str(token))
    stranger = console.stranger()

    assert stranger.get("/metrics").status == 401
    assert stranger.get("/metrics", Authorization="Bearer " + "t" * 39).status == 401
    for got in (
        stranger.get("/metrics", Authorization="Bearer " + "t" * 40),
        console.client().get("/metrics"),
    ):
        assert got.status == 200 and "takeback_effects" in got.text and got.text.endswith("# EOF\n")
    assert stranger.get("/", Authorization="Bearer " + "t" * 40).status == 401
