"""Which way back to prepare, and why, in one sentence that is journaled."""

from takeback.model.remedy import Offer, Strategy

_RANK = {strategy: rank for rank, strategy in enumerate(Strategy)}

_WORDS = {
    Strategy.TRANSACTION: "nothing is visible yet, so it can simply be dropped",
    Strategy.SNAPSHOT: "the earlier state is kept",
    Strategy.COMPENSATION: "another change makes up for it",
    Strategy.MANUAL: "a person has to follow written steps",
    Strategy.IRREVERSIBLE: "it cannot be undone",
}

_GATED = (Strategy.MANUAL, Strategy.IRREVERSIBLE)


def is_gated(offers: tuple[Offer, ...]) -> bool:
    """Whether a person must say yes first: there is no way back, or none that we could go."""
    return bool(offers) and all(offer.strategy in _GATED for offer in offers)


def ordered(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Best first: exact before inexact, then by strategy, then the cheaper."""
    return tuple(sorted(offers, key=lambda offer: (not offer.exact, _RANK[offer.strategy], offer.cost)))


def reason(chosen: Offer, refused: tuple[tuple[Offer, str], ...]) -> str:
    """Why this offer; with what was tried before it and why that did not work."""
    why = f"{chosen.strategy.value}: {chosen.why or _WORDS[chosen.strategy]}"
    for offer, trouble in refused:
        why += f"; {offer.strategy.value} could not be prepared ({trouble})"
    return why
