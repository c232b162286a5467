"""Writes powertools.json: records as Powertools for AWS Lambda (Python) writes them.

    pip install 'aws-lambda-powertools==3.37.0' jmespath 'moto[dynamodb]==5.2.*'
    python tests/events/powertools.py

The library itself writes them, into a table in memory; nothing is changed afterwards. Times are those
of the run: whoever uses the records shifts them.
"""

import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

os.environ |= {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_LAMBDA_FUNCTION_NAME": "orders",
    "POWERTOOLS_DEV": "true",
}

import boto3  # noqa: E402
from aws_lambda_powertools.utilities.idempotency import (  # noqa: E402
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from moto import mock_aws  # noqa: E402

DAY = 24 * 60 * 60


@dataclass
class Context:
    """The part of Lambda's context that Powertools reads."""

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


class Killed(BaseException):
    """Ends the function as a killed process does: Powertools cleans nothing up."""


def records() -> dict[str, dict]:
    client = boto3.client("dynamodb")
    client.create_table(
        TableName="idempotency",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    def run(name, work, config, context=True):
        if context:
            config.register_lambda_context(Context())

        def handler(order):
            return work()

        handler.__qualname__ = name
        guarded = idempotent_function(
            handler,
            data_keyword_argument="order",
            config=config,
            # One for each: a layer keeps the configuration that it saw first.
            persistence_store=DynamoDBPersistenceLayer(table_name="idempotency"),
        )
        try:
            guarded(order={"id": name, "amount": 5})
        except Killed:
            pass

    def killed():
        raise Killed

    run("completed", lambda: {"paid": True, "amount": 5}, IdempotencyConfig(expires_after_seconds=31 * DAY))
    run("nothing", lambda: None, IdempotencyConfig(expires_after_seconds=31 * DAY))
    run(
        "validated",
        lambda: {"paid": True},
        IdempotencyConfig(
            expires_after_seconds=31 * DAY,
            event_key_jmespath="id",
            payload_validation_jmespath="amount",
        ),
    )
    run("killed", killed, IdempotencyConfig(expires_after_seconds=31 * DAY))
    run("killed_without_context", killed, IdempotencyConfig(expires_after_seconds=31 * DAY), context=False)

    found = {}
    for item in client.scan(TableName="idempotency")["Items"]:
        name = item["id"]["S"].split("#")[0].rsplit(".", 1)[-1]
        found[name] = item
    return dict(sorted(found.items()))


if __name__ == "__main__":
    with mock_aws():
        written = {
            "by": f"Powertools for AWS Lambda (Python) {version('aws-lambda-powertools')}",
            "records": records(),
        }
    target = Path(__file__).with_suffix(".json")
    target.write_text(json.dumps(written, indent=2) + "\n")
