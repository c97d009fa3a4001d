"""Commands over the real filesystem, whose changes land in a layer beside it. Knows nothing of effects or stores."""
