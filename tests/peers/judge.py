"""Signs and verifies deliveries with the senders' own libraries.

    judge.py sign LIBRARY      deliveries to sign on stdin, their headers on stdout
    judge.py verify LIBRARY    serves HTTP on a free port of this machine, which it prints, and
                               answers each POST: 202 where the library accepts it, else 401

Both speak JSON, one object a line. The first line on stdin is {"secret": "..."}. A delivery is
{"url", "id", "timestamp", "content_type", "body_base64"}; what is printed for it is its headers.
"""

import base64
import datetime
import http.server
import importlib.metadata
import json
import sys
import urllib.parse


class Form(dict):
    """The parameters of a form, some of them more than once, as Twilio's validator asks for them."""

    def __init__(self, body):
        super().__init__()
        for name, value in urllib.parse.parse_qsl(body.decode(), keep_blank_values=True):
            self.setdefault(name, []).append(value)

    def getall(self, name):
        return self[name]


class GidgetHub:
    package = "gidgethub"

    def verify(self, secret, url, headers, body):
        from gidgethub import sansio

        event = sansio.Event.from_http(headers, body, secret=secret)
        assert event.delivery_id and event.event


class GidgetLab:
    package = "gidgetlab"

    def verify(self, secret, url, headers, body):
        from gidgetlab import sansio

        event = sansio.Event.from_http(headers, body, secret=secret)
        assert event.event


class Stripe:
    package = "stripe"

    def sign(self, secret, delivery, body):
        from stripe import WebhookSignature

        timestamp = delivery["timestamp"]
        signature = WebhookSignature._compute_signature(f"{timestamp}.{body.decode()}", secret)
        return {"stripe-signature": f"t={timestamp},v1={signature}"}

    def verify(self, secret, url, headers, body):
        import stripe

        event = stripe.Webhook.construct_event(body, headers["stripe-signature"], secret)
        assert event.id.startswith("evt_")


class Slack:
    package = "slack_sdk"

    def sign(self, secret, delivery, body):
        from slack_sdk.signature import SignatureVerifier

        timestamp = str(delivery["timestamp"])
        signature = SignatureVerifier(secret).generate_signature(timestamp=timestamp, body=body)
        return {"x-slack-request-timestamp": timestamp, "x-slack-signature": signature}

    def verify(self, secret, url, headers, body):
        from slack_sdk.signature import SignatureVerifier

        assert SignatureVerifier(secret).is_valid_request(body, headers)


class StandardWebhooks:
    package = "standardwebhooks"

    def webhook(self, secret):
        from standardwebhooks.webhooks import Webhook

        return Webhook(secret)

    def sign(self, secret, delivery, body):
        timestamp = datetime.datetime.fromtimestamp(delivery["timestamp"], datetime.timezone.utc)
        signature = self.webhook(secret).sign(delivery["id"], timestamp, body.decode())
        return {
            "webhook-id": delivery["id"],
            "webhook-timestamp": str(delivery["timestamp"]),
            "webhook-signature": signature,
        }

    def verify(self, secret, url, headers, body):
        self.webhook(secret).verify(body, headers)


class Svix(StandardWebhooks):
    package = "svix"

    def webhook(self, secret):
        from svix.webhooks import Webhook

        return Webhook(secret)


class Twilio:
    package = "twilio"

    def sign(self, secret, delivery, body):
        from twilio.request_validator import RequestValidator

        form = delivery["content_type"].startswith("application/x-www-form-urlencoded")
        parameters = Form(body) if form else {}
        signature = RequestValidator(secret).compute_signature(delivery["url"], parameters)
        return {"x-twilio-signature": signature}

    def verify(self, secret, url, headers, body):
        from twilio.request_validator import RequestValidator

        form = headers["content-type"].startswith("application/x-www-form-urlencoded")
        parameters = Form(body) if form else body.decode()
        signature = headers["x-twilio-signature"]
        assert RequestValidator(secret).validate(url, parameters, signature)


LIBRARIES = {
    library.package: library
    for library in (GidgetHub, GidgetLab, Stripe, Slack, StandardWebhooks, Svix, Twilio)
}


def sign(library, secret):
    for line in sys.stdin:
        delivery = json.loads(line)
        body = base64.b64decode(delivery["body_base64"])
        print(json.dumps(library.sign(secret, delivery, body)), flush=True)


def verify(library, secret):
    name = f"{library.package} {importlib.metadata.version(library.package)}"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            url = f"http://{headers['host']}{self.path}"
            try:
                library.verify(secret, url, headers, body)
                self.answer(202, {"key": name})
            except Exception as refused:
                self.answer(401, {"key": name, "refused": repr(refused)})

        def answer(self, status, said):
            said = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_port, "library": name}), flush=True)
    server.serve_forever()


def main():
    command, library = sys.argv[1:]
    library = LIBRARIES[library]()
    secret = json.loads(sys.stdin.readline())["secret"]
    {"sign": sign, "verify": verify}[command](library, secret)


if __name__ == "__main__":
    main()
