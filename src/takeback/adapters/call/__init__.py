"""Functions that act on the world outside: called under a key, asked about, made up for."""
