"""Proof for an auditor: anchors, and what they show."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.api.store import OpenStore, now
from takeback.errors import Misuse, Refused
from takeback.model.functions import refuse_while_looking

if TYPE_CHECKING:
    from takeback.audit.anchor_places import AnchorPlace, AuditSettings
    from takeback.audit.anchors import AnchorCheck, Anchored, ProofLevel
    from takeback.audit.verifier import Anchor


def anchor(opened: OpenStore, *places: str, key: str = "", by: str = "") -> "Anchored":
    """Sign the newest record, and copy the signature to these places and to those of the settings (`[audit]` of
    config.toml): `file:…`, `git:…`, `store:…`, `syslog:…`, `tsa:…`. `.failed` lists the places that do not have it."""
    from takeback.audit.anchors import Anchored, kept, signed, stated
    from takeback.audit.keys import refuse_near, signer
    from takeback.runs.person import person_here

    refuse_while_looking()
    settings, named = _settings(places)
    path = key or settings.key
    if not path:
        raise Misuse(
            "There is no key to sign with.",
            hint="`takeback audit key new` makes one; --key, or [audit] in config.toml, names it.",
        )
    by_key = signer(path)
    refuse_near(path, opened.store.path)
    opened.store.refuse_if_suspect()
    statement, is_new = stated(opened.store, named, by_key.key, settings.trusted, now)
    if not is_new:
        return Anchored(statement, (), (), is_new=False)
    return kept(opened.store, signed(statement, by_key), named, person_here(opened.store, by), now)


def check_anchors(
    opened: OpenStore, *places: str, keys: Sequence[str] = (), authority: str = ""
) -> "AnchorCheck":
    """Hash every record again, and compare the journal with the anchors in these places, in those of the settings and
    in the files that the journal names. `keys`: public keys that you vouch for; else those of the settings."""
    from takeback.audit.anchors import checked
    from takeback.audit.keys import public_of

    settings, named = _settings(places)
    opened.store.read_anew()
    trusted = [public_of(one) for one in keys] or settings.trusted
    return checked(opened.store, named, trusted, now, authority or settings.authority)


def proof_level(opened: OpenStore, look: "AnchorCheck | None" = None) -> "ProofLevel":
    """How much of faults in the journal would show: the level, who can read the key, when it was last anchored."""
    from takeback.audit.anchor_places import settings_here
    from takeback.audit.anchors import proof_level

    return proof_level(look or check_anchors(opened), settings_here())


def _settings(places: Sequence[str]) -> "tuple[AuditSettings, list[AnchorPlace]]":
    from takeback.audit.anchor_places import place_named, settings_here

    settings = settings_here()
    return settings, list(dict.fromkeys((*settings.places, *(place_named(one) for one in places))))


def statement(opened: OpenStore, *places: str, key: str = "") -> "Anchor":
    """The statement to be signed now, without its signature. `key`: the public key of the user who will sign."""
    from takeback.audit.anchors import stated
    from takeback.audit.keys import public_of

    settings, named = _settings(places)
    public = public_of(key) if key else "".join(settings.trusted[:1])
    return stated(opened.store, named, public, settings.trusted, now)[0]._replace(signature="", stamps=())


def signed_here(
    statement: "Anchor", places: Sequence[str], key: str = "", *, dry_run: bool = False
) -> "Anchor":
    """Sign what another user stated, as this one. Kept in `places` first; refused if it goes back behind what stands
    there."""
    from takeback.audit.anchor_places import found, place_named, written
    from takeback.audit.anchors import signed
    from takeback.audit.keys import signer

    settings = _settings(())[0]
    if not (key or settings.key):
        raise Misuse(
            "There is no key to sign with.", hint="`takeback audit key new` makes one; --key names it."
        )
    by_key = signer(key or settings.key)
    named = [place_named(one) for one in places]
    for place in named:
        for known in found(place, now).anchors:
            if known.name == statement.name and known.key == by_key.key and known.seq > statement.seq:
                raise Refused(
                    f"{place} has an anchor of {known.seq:,} records, and this one is of {statement.seq:,}: the "
                    "journal was cut or rolled back.",
                    hint="It was not signed. `takeback audit verify` compares the journal with that place.",
                )
    made = signed(statement._replace(key=by_key.key, at=now()), by_key)
    for place in named if not dry_run else ():
        written(place, made, now)
    return made


def keep_signed(opened: OpenStore, anchor: "Anchor", *places: str, by: str = "") -> "Anchored":
    """Take what another user has signed: copy it to the places, and record it."""
    from takeback.audit.anchors import kept, refuse_unfit
    from takeback.runs.person import person_here

    refuse_while_looking()
    opened.store.refuse_if_suspect()
    _, named = _settings(places)
    refuse_unfit(opened.store, anchor)
    return kept(opened.store, anchor, named, person_here(opened.store, by), now)
