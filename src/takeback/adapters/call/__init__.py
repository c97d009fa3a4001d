"""Functions that act on the world outside: called under a key, verified, compensated."""
