"""Files as people really write them: an edit touches the lines it is about and no other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback.adapters.config import yaml_edit
from takeback.adapters.config.formats import edit, format_of, read, rewritten
from takeback.adapters.config.keys import (
    RestoredKey,
    find,
    neighbours,
    pointer_of,
    same,
    tokens,
    with_restored,
)

SAMPLES = {
    "docker-compose.yml": """# Compose file for the shop
version: "3.8"

x-logging: &default-logging
  driver: json-file
  options:
    max-size: "10m"   # keep it small
    max-file: "3"

services:
  web:
    image: nginx:1.25-alpine
    restart: unless-stopped
    ports:
      - "80:80"
      - "443:443"
    environment:
      - TZ=Europe/Berlin
      - DEBUG=false   # never true in production
    depends_on:
      db:
        condition: service_healthy
    logging: *default-logging

  # the database
  db:
    image: 'postgres:16'
    command: >
      postgres -c max_connections=200
      -c shared_buffers=256MB
    environment:
      POSTGRES_PASSWORD: ${DB_PASSWORD:?missing}
      POSTGRES_DB: shop
    healthcheck:
      test: ["CMD-SHELL", "pg_isready -U postgres"]
      interval: 10s
      retries: 5
    volumes:
      - data:/var/lib/postgresql/data
    <<: *default-logging

volumes:
  data:
    external: false
networks: {front: {driver: bridge}, back: {internal: true}}
""",
    "workflow.yml": """name: CI
on:
  push:
    branches: [ main, 'release/**' ]
  pull_request:
permissions:
  contents: read
jobs:
  test:
    runs-on: ${{ matrix.os }}
    timeout-minutes: 15
    strategy:
      fail-fast: false
      matrix:
        os: [ubuntu-latest, macos-latest]
        python: ["3.11", "3.12"]   # both
        include:
        - os: windows-latest
          python: "3.12"
    steps:
    - uses: actions/checkout@v4
      with:
        fetch-depth: 0
    # install
    - name: Set up Python
      uses: actions/setup-python@v5
      with:
        python-version: ${{ matrix.python }}
    - name: Test
      run: |
        pip install -e .[test]

        pytest -q --cov   # not a comment of YAML
      env:
        FOO: bar
    - run: echo done
""",
    "deployment.yaml": """---
apiVersion: apps/v1
kind: Deployment
metadata:
    name: shop
    labels: {app: shop, tier: "web"}
    annotations:
        note: "multi word: with colon"
        created: 2024-05-01T10:00:00Z
spec:
    replicas: 3        # scaled by hand
    selector:
        matchLabels:
            app: shop
    template:
        metadata:
            labels:
                app: shop
        spec:
            containers:
                -   name: web
                    image: registry.example.com/shop:1.2.3
                    args: ["--port", "8080"]
                    ports:
                        - containerPort: 8080
                          protocol: TCP
                    resources:
                        limits:
                            cpu: 500m
                            memory: 128Mi
                    env:
                        - {name: MODE, value: "0755"}
                        - name: EMPTY
                          value:
            securityContext: {}
            tolerations: []
""",
    "pyproject.toml": """[build-system]
requires = ["hatchling>=1.20"]   # builder
build-backend = "hatchling.build"

[project]
name = "shop"
version = "1.2.3"
description = 'A "shop"'
dependencies = [
  "httpx>=0.27",  # http
  "click",
]
released = 2024-05-01
ratio = 1.50

[project.optional-dependencies]
test = ["pytest", "hypothesis"]

[project.urls]
"Home Page" = "https://example.com"

[tool.ruff]
line-length = 110
lint.select = ["E", "F"]

[tool.ruff.lint.per-file-ignores]
"tests/*" = ["S101"]

# the plugins
[[tool.plugins]]
name = "a"
options = { x = 1, y = "two" }

[[tool.plugins]]
name = "b"

[tool.mypy]
strict = true
""",
    "package.json": r"""{
  "name": "shop",
  "version": "1.2.3",
  "private": true,
  "scripts": {
    "build": "tsc -p .",
    "test": "vitest run"
  },
  "files": ["dist", "README.md"],
  "dependencies": {
    "react": "^18.2.0",
    "zod": "3.22.4"
  },
  "config": { "port": 8080, "ratio": 1.50, "big": 12345678901234567890, "e": 1E5 },
  "empty": {},
  "none": [],
  "matrix": [
    [1, 2],
    [3, 4]
  ],
  "people": [
    {
      "name": "Zo\u00eb"
    },
    {
      "name": "Bob"
    }
  ]
}
""",
    "tsconfig.json": """{
	// The compiler
	"compilerOptions": {
		"target": "ES2022", // modern
		"strict": true,
		/* paths */
		"paths": {
			"@/*": ["./src/*"],
		},
		"lib": [
			"DOM", // browser
			"ES2022",
		],
		"jsx": "react-jsx", // last, with comma
	},
	"include": ["src"], // what
	"exclude": ["node_modules"] // what not
}
""",
}
VALUES = [
    7, True, "plain", "yes", "a: b", "it's", "#x", "", "zoë", "${{ secrets.X }}", 1.5, [], {}, [1, "b"],
    {"k": 1, "l": ["x", {"y": 2}]}, "two\nlines\n", "two\nlines, no end", [[1, 2], [3]], [{"a": 1}, {"b": []}],
]  # fmt: skip


def pointers(document, path=()):
    if path:
        yield pointer_of(path)
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in inner:
        yield from pointers(value, (*path, str(key)))


def is_part_of(lines, others):
    """All of these lines, in this order, are among the others; a comma at the end of JSON lines does not count."""
    rest = iter([line.rstrip("\r\n").rstrip(",") for line in others])
    return all(line.rstrip("\r\n").rstrip(",") in rest for line in lines)


def is_on_one_line(value):
    return not isinstance(value, dict | list) and "\n" not in str(value)


def every_key(wanted=lambda value: True):
    return [
        pytest.param(name, pointer, id=f"{name} {pointer}")
        for name, text in SAMPLES.items()
        for document in [read(format_of(name), text.encode())]
        for pointer in pointers(document)
        if wanted(find(document, pointer)[1]) and pointer != "/x-logging"  # others refer to it
    ]


def parts(name, crlf=False):
    text = SAMPLES[name].replace("\n", "\r\n") if crlf else SAMPLES[name]
    return format_of(name), text, read(format_of(name), text.encode())


@pytest.fixture
def no_round_trip(monkeypatch):
    """Real files must not need the second choice, which lays lines out anew."""

    def refuse(text, step):
        raise AssertionError(f"a round trip for {step}")

    monkeypatch.setattr(yaml_edit, "change_by_round_trip", refuse)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("no_round_trip")
@pytest.mark.parametrize(("name", "pointer"), every_key(is_on_one_line))
def test_a_scalar_is_replaced_on_its_own_line(name, pointer):
    format, text, _ = parts(name)

    new = edit(format, text.encode(), {pointer: "changed"}).decode()

    old_lines, new_lines = text.splitlines(), new.splitlines()
    differ = [(a, b) for a, b in zip(old_lines, new_lines, strict=True) if a != b]
    assert len(differ) == 1 and "changed" in differ[0][1]
    assert differ[0][0].partition("#")[2] == differ[0][1].partition("#")[2]


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("no_round_trip")
@pytest.mark.parametrize(("name", "pointer"), every_key())
@pytest.mark.parametrize("crlf", [False, True], ids=["", "crlf"])
def test_a_deleted_key_takes_only_its_own_lines(name, pointer, crlf):
    format, text, document = parts(name, crlf)

    new = edit(format, text.encode(), {}, [pointer]).decode()

    old_lines, new_lines = text.splitlines(), new.splitlines()
    changed = [line for line in new_lines if not is_part_of([line], old_lines)]

    assert len(changed) <= 1, changed  # a parent that is empty now, or a list on one line
    assert is_part_of([line for line in new_lines if line not in changed], old_lines)
    if not isinstance(find(document, pointer)[1], dict | list):
        assert [line for line in old_lines if is_comment(line)] == [
            line for line in new_lines if is_comment(line)
        ]
    assert ("\r\n" in new) == crlf and (not crlf or "\n" not in new.replace("\r\n", ""))


def is_comment(line):
    return line.strip().startswith(("#", "//", "/*"))


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("no_round_trip")
@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_new_key_or_item_leaves_every_line_in_place(name, data):
    format, text, document = parts(name, data.draw(st.booleans()))
    homes = [p for p in pointers(document) if isinstance(find(document, p)[1], dict | list)]
    home = data.draw(st.sampled_from(homes))
    place = home + ("/-" if isinstance(find(document, home)[1], list) else "/new key")
    value = data.draw(st.sampled_from(VALUES if home != "/tool/plugins" else [{"k": 1}, {}]))

    new = edit(format, text.encode(), {place: value}).decode()

    changed = [
        line
        for line in text.splitlines()
        if line.rstrip(",") not in [n.rstrip(",") for n in new.splitlines()]
    ]
    assert len(changed) <= 1, changed  # the one line a short list or object stands on
    assert ("\r\n" in new) == ("\r\n" in text) and ("\r\n" not in text or "\n" not in new.replace("\r\n", ""))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "pointer"), every_key())
def test_what_was_deleted_comes_back_by_key_with_its_type(name, pointer):
    format, text, document = parts(name)
    without = edit(format, text.encode(), {}, [pointer])
    parent = pointer_of(tokens(pointer)[:-1])
    if isinstance(find(document, parent)[1], list):
        key = RestoredKey(parent, True, find(document, parent)[1])
    else:
        key = RestoredKey(pointer, True, find(document, pointer)[1], *neighbours(document, pointer))

    wanted = with_restored(read(format, without), [key]).wanted
    again = rewritten(format, without, wanted)

    assert same(read(format, again), document)
    if format != "toml":
        assert list(read(format, again)) == list(document)


@pytest.mark.parametrize("name", SAMPLES)
def test_an_edit_that_changes_nothing_gives_the_same_bytes(name):
    format, text, document = parts(name)
    same_again = {
        pointer: find(document, pointer)[1]
        for pointer in ("/name", "/version", "/kind", "/project/name", "/include")
        if find(document, pointer)[0]
    }

    assert same_again
    assert edit(format, text.encode(), same_again) == text.encode()
