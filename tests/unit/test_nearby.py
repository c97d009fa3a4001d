"""Paths and times from where the reader stands."""

from takeback.frontends.cli.output.screen import Here, ago, folded, near, near_text

PLACE = Here("/home/kim/shop", "/home/kim")
SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND


def test_near_paths() -> None:
    assert near("/home/kim/shop", PLACE) == "."
    assert near("/home/kim/shop/a/b", PLACE) == "a/b"
    assert near("/home/kim/other", PLACE) == "~/other"
    assert near("/home/kim/shopping", PLACE) == "~/shopping"
    assert near("/etc/hosts", PLACE) == "/etc/hosts"
    assert near("/etc", Here("/", "")) == "/etc"


def test_near_sentences() -> None:
    assert near_text("move /home/kim/shop/a to /home/kim/b", PLACE) == "move a to ~/b"
    assert near_text("write /mnt/home/kim/shop/a", PLACE) == "write /mnt/home/kim/shop/a"
    assert near_text("cat 'x'/home/kim/shop/a", Here("", "")) == "cat 'x'/home/kim/shop/a"


def test_directories_are_folded_and_what_is_near_comes_first() -> None:
    cache = [f"/home/kim/.npm/_cacache/{n}" for n in range(5)]
    modules = [f"/home/kim/shop/node_modules/{n}" for n in range(19)]

    assert folded([*cache, *modules, "/home/kim/shop/package.json"], 10, PLACE) == [
        "node_modules/ (19 paths)", "package.json", "~/.npm/ (5 paths)",
    ]  # fmt: skip
    assert folded([f"/home/kim/shop/{n}" for n in range(30)], 10, PLACE)[-1] == "and 20 more"
    assert folded(cache[:2], 10, PLACE) == ["~/.npm/_cacache/0", "~/.npm/_cacache/1"]


def test_relative_times() -> None:
    told = {
        seconds: ago(NOW - seconds * SECOND, NOW)
        for seconds in (0, 4, 5, 59, 60, 3599, 3600, 86399, 86400, 172800)
    }

    assert list(told.values()) == [
        "just now", "just now", "5 s ago", "59 s ago", "1 min ago", "59 min ago", "1 h ago", "23 h ago", "1 day ago",
        "2 days ago",
    ]  # fmt: skip
    assert ago(0, NOW) == "?"
    assert ago(NOW + SECOND, NOW) == "just now"
    assert "ago" not in ago(NOW - 8 * 86400 * SECOND, NOW)
