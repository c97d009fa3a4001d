"""A time-stamp service on loopback, with a certificate of its own that is thrown away."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

_CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = throw-away
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = keyCertSign
[service]
extendedKeyUsage = critical, timeStamping
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
[tsa]
default_tsa = here
[here]
serial = {place}/serial
signer_cert = {place}/service.pem
certs = {place}/ca.pem
signer_key = {place}/service.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
"""


class Authority(NamedTuple):
    url: str
    certificate: Path


def openssl(*words: object, given: bytes = b"") -> bytes:
    return subprocess.run(
        ["openssl", *map(str, words)], input=given, capture_output=True, check=True, timeout=60
    ).stdout


@contextmanager
def serving(place: Path) -> Iterator[Authority]:
    (place / "openssl.cnf").write_text(_CONFIG.format(place=place))
    (place / "serial").write_text("01\n")
    config = place / "openssl.cnf"
    for name, extra in (
        ("authority", ()),
        ("service", ("-CA", place / "ca.pem", "-CAkey", place / "ca.key")),
    ):
        file = "ca" if name == "authority" else name
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
            "-config", config, "-extensions", name, "-subj", f"/CN={name}", *extra,
            "-keyout", place / f"{file}.key", "-out", place / f"{file}.pem",
        )  # fmt: skip

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            (place / "query").write_bytes(query)
            answer = openssl("ts", "-reply", "-config", config, "-queryfile", place / "query")
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Authority(f"http://127.0.0.1:{server.server_port}/", place / "ca.pem")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
