"""Where operations are applied: counts the effects of each key, and can hang or refuse."""

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Target:
    """A server on loopback. It honours no idempotency key: each request that it applies is an
    effect, so that a second one is seen."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests: list[dict[str, str]] = []
        self.effects: Counter[str] = Counter()
        self.refused: dict[str, int] = {}
        self.hanging: set[str] = set()
        self.gate = threading.Event()

        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                status = outer.apply({name.lower(): value for name, value in self.headers.items()})
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A caller that was killed is no news.
        self.server.handle_error = lambda *_: None
        # What hangs must not keep the test from ending.
        self.server.daemon_threads = True

    def __enter__(self) -> "Target":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.gate.set()
        self.server.shutdown()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/apply"

    def apply(self, headers: dict[str, str]) -> int:
        delivery = headers["firstclaim-delivery"]
        with self.lock:
            self.requests.append(headers)
            refused = self.refused.get(delivery)
            hangs = delivery in self.hanging and headers["firstclaim-attempt"] == "1"
        if refused:
            return refused
        if hangs:
            # Its caller is killed meanwhile; it never takes effect.
            self.gate.wait()
            return 503
        with self.lock:
            self.effects[delivery] += 1
        return 200

    def requests_of(self, delivery: str) -> list[dict[str, str]]:
        with self.lock:
            return [one for one in self.requests if one["firstclaim-delivery"] == delivery]

    def effects_of(self, deliveries) -> list[int]:
        with self.lock:
            return [self.effects[delivery] for delivery in deliveries]
