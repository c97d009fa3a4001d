"""A console that serves a real store, a plain HTTP client that speaks to it, and Chromium."""

import http.client
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

import takeback
from takeback.api import Takeback
from takeback.frontends.console.accounts import Accounts
from takeback.frontends.console.serve import Served, ServingWishes, serve
from takeback.frontends.console.visitor import Role
from tests.world import World

PASSWORD = "a long enough password"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Got(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]

    @property
    def words(self) -> str:
        """As a reader sees it, roughly."""
        return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", self.text)))

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields of its last form that is not about the head of the page."""
        forms = re.findall(r"<form[^>]*>(.*?)</form>", self.text, re.S)
        found: dict[str, str] = {}
        for form in forms:
            found |= {
                unescape(name): unescape(value)
                for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
            }
        return found


class Client:
    """Someone with a browser, or without one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.cookie = ""
        self.csrf = ""

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Got:
        parts = urlsplit(self.address)
        link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            given = {"Cookie": self.cookie} if self.cookie else {}
            link.request(method, path, body, given | (headers or {}))
            answer = link.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            if "set-cookie" in told:
                self.cookie = told["set-cookie"].partition(";")[0]
            return Got(answer.status, answer.read().decode(), told)
        finally:
            link.close()

    def get(self, path: str, **headers: str) -> Got:
        got = self.ask("GET", path, headers=headers)
        if found := re.search(r'name="csrf" value="([^"]+)"', got.text):
            self.csrf = unescape(found[1])
        return got

    def post(self, path: str, fields: dict[str, Any] | None = None, **headers: str) -> Got:
        """As the page of the console would send it."""
        body = urlencode({"csrf": self.csrf, **(fields or {})}, doseq=True).encode()
        usual = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.address}
        return self.ask("POST", path, body, usual | headers)

    def enter(self, link: str) -> Got:
        token = link.rpartition("token=")[2]
        got = self.post("/enter", {"token": token})
        self.get("/")
        return got

    def log_in(self, name: str, password: str = PASSWORD) -> Got:
        got = self.post("/login", {"name": name, "password": password})
        self.get("/")
        return got


class Running(NamedTuple):
    tb: Takeback
    told: list[Served]
    address: str

    @property
    def link(self) -> str:
        return self.told[-1].link

    def client(self) -> Client:
        """Someone who came in by the link."""
        client = Client(self.address)
        assert client.enter(self.link).status == 303
        return client

    def stranger(self) -> Client:
        return Client(self.address)


Serve = Callable[..., Running]


@pytest.fixture
def serving(store: Path) -> Iterator[Serve]:
    """Starts consoles of this test's store; they end with the test."""
    ends: list[Callable[[], None]] = []

    def start(**wishes: Any) -> Running:
        tb = takeback.open(store, recover=False)
        told: list[Served] = []
        there = threading.Event()

        def tell(served: Served) -> None:
            told.append(served)
            there.set()

        thread = threading.Thread(target=serve, args=(tb, ServingWishes(**wishes), tell))
        thread.start()
        assert there.wait(20)

        def end() -> None:
            told[0].end()
            thread.join(20)
            tb.close()

        ends.append(end)
        return Running(tb, told, told[0].address)

    yield start
    for end in ends:
        end()


@pytest.fixture
def console(serving: Serve) -> Running:
    return serving()


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for each role; its name is that of the role. Making them takes a while, as it should."""
    place = tmp_path_factory.mktemp("accounts") / "accounts.json"
    for role in Role:
        Accounts(str(place)).put(role.value, role, PASSWORD)
    return str(place)


@pytest.fixture
def team(serving: Serve, accounts: str) -> Running:
    return serving(accounts=accounts)


@pytest.fixture
def tb(store: Path) -> Iterator[Takeback]:
    """The same store as the console's, as an agent uses it."""
    with takeback.open(store) as opened:
        yield opened


@pytest.fixture
def edited(tb: Takeback, world: World) -> list[takeback.Effect]:
    """A file written twice, and another one, by an agent."""
    with tb.run("enable TLS", agent="deployer") as run:
        return [
            run.write(world / "app.toml", "on = false\nport = 80\n"),
            run.write(world / "app.toml", "on = true\nport = 443\n"),
            run.write(world / "other.txt", "other\n"),
        ]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; one for each worker."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    assert found, "`tools/set-up dev` installs chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()
