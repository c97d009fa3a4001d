from tests.e2e.conftest import takeback  # noqa: F401 the fixture
