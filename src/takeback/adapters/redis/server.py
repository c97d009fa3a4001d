"""What kind of server it is, and whether what is changed there can be taken back."""

from takeback.adapters.database.protocol import Cover
from takeback.adapters.redis.link import NEW_ENOUGH, Link
from takeback.adapters.redis.marks import COUNT, OPS, TOUCHED, WIDE
from takeback.errors import Refused

EVERY_KEY = "*"
_SECTIONS = ("server", "cluster", "replication", "memory", "persistence")
_TYPES = {COUNT: b"string", OPS: b"zset", TOUCHED: b"zset", WIDE: b"zset"}


def facts(link: Link) -> dict[str, str]:
    """What INFO says; asked once for each connection."""
    if not link.facts:
        told: bytes = link.one("INFO", *_SECTIONS)
        lines = (line.partition(":") for line in told.decode("utf-8", "replace").splitlines())
        link.facts = {name: value.strip() for name, separator, value in lines if separator}
    return link.facts


def refuse_unfit(link: Link) -> None:
    if why := unfit(link):
        raise Refused(f"This Redis server cannot be worked on with takeback: {why[0]}.", hint=why[1])


def unfit(link: Link) -> tuple[str, str] | None:
    """Why not, and what to do about it."""
    told = facts(link)
    version = told.get("redis_version", "0")
    if int(version.partition(".")[0] or 0) < NEW_ENOUGH:
        return (f"it is version {version}", "Redis 7.0 or later, or Valkey, is needed.")
    if told.get("cluster_enabled") == "1" or told.get("redis_mode") == "cluster":
        return (
            "it is part of a cluster",
            "Keys of one effect can be on several servers there, which is not covered.",
        )
    if told.get("role") == "slave":
        return ("it is a replica", "Connect to its primary.")
    policy = told.get("maxmemory_policy", "")
    if policy.startswith("allkeys") and told.get("maxmemory", "0") != "0":
        return (
            f"when memory is short it drops any key ({policy}), takeback's marks too",
            "Set maxmemory-policy to noeviction or to one that begins with volatile-.",
        )
    for name, kind in _TYPES.items():
        found = link.one("TYPE", name)
        if found not in (kind, b"none"):
            return (
                f"its key {name.decode()} is takeback's, but holds a {found.decode()}",
                "Someone wrote it; look at it and remove it.",
            )
    return None


def cover(link: Link) -> Cover:
    why = unfit(link)
    told = facts(link)
    name = "Valkey" if told.get("server_name") == "valkey" else "Redis"
    version = told.get("valkey_version") or told.get("redis_version", "?")
    says = [f"{name} {version}."]
    if why:
        return Cover("", (), ((EVERY_KEY, why[0]),), (*says, why[1]))
    says.append(
        "Every key of this database is covered for commands that go through takeback; nothing had to be installed."
    )
    says.append(
        "Not covered: scripts that write, blocking commands, what is published, other databases, clusters."
    )
    if told.get("aof_enabled") != "1":
        says.append(
            "The server writes no append-only file: after a crash it may have lost changes together with their marks; "
            "they then count as never made."
        )
    if told.get("maxmemory_policy", "").startswith("volatile") and told.get("maxmemory", "0") != "0":
        says.append(
            "Keys that expire may be dropped early when memory is short; undo then reports them as gone."
        )
    return Cover("full", (EVERY_KEY,), (), tuple(says))
