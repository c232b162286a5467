"""A sender of webhooks: signs as GitHub does, and posts to the deployed address."""

import base64
import hashlib
import hmac
import http.client
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

GITHUB_SECRET = "deployment-test-secret-of-github"
TOKEN = "deployment-test-token-0123456789"

SENDERS = {
    "github": {"scheme": "github", "secrets": [GITHUB_SECRET]},
    "deploys": {"scheme": "token", "secrets": [TOKEN]},
}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def cut_off(self) -> bool:
        """Whether the emulator ended the function under the request, as it does with every function
        that it updates. On AWS a running one ends by itself, and a sender sees nothing of it."""
        return self.status == 502 and b"Runtime.ExitError" in self.body


@dataclass
class Door:
    """The deployed address: where to connect to, and which host it is."""

    port: int
    host: str

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)
        try:
            connection.request(method, path, body, {"host": self.host, **headers})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()


@dataclass
class Event:
    """One comment on GitHub, under a delivery id of its own."""

    delivery: str
    body: bytes

    def send(self, door: Door, secret: str = GITHUB_SECRET) -> Answer:
        signature = hmac.new(secret.encode(), self.body, hashlib.sha256).hexdigest()
        headers = {
            "content-type": "application/json",
            "user-agent": "GitHub-Hookshot/firstclaim",
            "x-github-event": "issue_comment",
            "x-github-delivery": self.delivery,
            "x-hub-signature-256": f"sha256={signature}",
        }
        return door.request("POST", "/webhooks/github", headers, self.body)


class Comments:
    """Makes events that differ in what GitHub's differ in: the comment's id."""

    def __init__(self, root: Path):
        sample = json.loads((root / "tests/events/github/issue_comment.created.json").read_text())
        self.body = json.loads(base64.b64decode(sample["body_base64"]))
        self.next_id = 1_000_000

    def new(self) -> Event:
        self.next_id += 1
        self.body["comment"]["id"] = self.next_id
        return Event(str(uuid.uuid4()), json.dumps(self.body).encode())


def operation(door: Door, key: str, body: dict) -> Answer:
    """Posts an operation under a key of the caller's own."""
    headers = {
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        "idempotency-key": key,
    }
    return door.request("POST", "/operations", headers, json.dumps(body).encode())


def look_up(door: Door, path: str) -> Answer:
    """Asks how an operation stands."""
    return door.request("GET", path, {"authorization": f"Bearer {TOKEN}"})
