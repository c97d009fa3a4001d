from tests.e2e import conftest

takeback = conftest.takeback
