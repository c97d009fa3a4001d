"""Real database servers for tests: their own directories, their own ports, dead when the tests are."""
