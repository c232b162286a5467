"""Under the emulator's IAM evaluation: what a role without one of its rights can't do."""

import json
from contextlib import contextmanager

from emulator import until
from life import SOON, World, key_of, queue_is_empty, take_letter


@contextmanager
def without(world: World, role: str, policy: str, action: str):
    """The role without one action, until the end of the block."""
    iam = world.emulator.client("iam")
    name = world.resource(role)
    document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
    if isinstance(document, str):
        document = json.loads(document)
    less = json.loads(json.dumps(document))
    for statement in less["Statement"]:
        actions = statement["Action"]
        actions = [actions] if isinstance(actions, str) else actions
        statement["Action"] = [one for one in actions if one != action]
    less["Statement"] = [one for one in less["Statement"] if one["Action"]]
    assert less != document, f"{role} has no {action}"
    iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(less))
    try:
        yield
    finally:
        iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))


def without_the_queue_nothing_is_accepted(world: World) -> None:
    event = world.comments.new()
    with without(world, "WebhookRole", "webhook", "sqs:SendMessage"):
        answer = event.send(world.door)
        assert answer.status == 503 and answer.headers.get("retry-after"), answer
    key_of(event.send(world.door))
    world.applied([event])


def without_claims_nothing_is_applied(world: World) -> None:
    event = world.comments.new()
    before = world.emulator.said("store_unavailable")
    with without(world, "QueueRole", "queue", "dynamodb:PutItem"):
        key_of(event.send(world.door))
        until("the refused claim", SOON, lambda: world.emulator.said("store_unavailable") > before)
        assert world.target.effects_of([event.delivery]) == [0]
    # It comes back when its visibility ends, and is applied then.
    world.applied([event])


def without_dead_letters_nothing_is_dropped(world: World) -> None:
    event = world.comments.new()
    world.target.refused[event.delivery] = 422
    unsent = "the dead letter could not be sent"
    with without(world, "QueueRole", "queue", "sqs:SendMessage"):
        key_of(event.send(world.door))
        until("the refused letter", SOON, lambda: world.emulator.said(unsent))
        attributes = world.attributes(world.outputs["WorkQueueUrl"])
        waiting = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        assert any(attributes[count] != "0" for count in waiting), attributes
    letter = take_letter(world)
    assert letter["MessageAttributes"]["reason"]["StringValue"] == "permanent", letter
    queue_is_empty(world)


def receiving_is_not_evaluated(world: World) -> None:
    """A limit of the emulator, kept here so that its end is noticed: its event source mapping
    receives and deletes past the function's role. On AWS the mapping would stop."""
    event = world.comments.new()
    with without(world, "QueueRole", "queue", "sqs:ReceiveMessage"):
        key_of(event.send(world.door))
        world.applied([event])


REMOVED = [
    without_the_queue_nothing_is_accepted,
    without_claims_nothing_is_applied,
    without_dead_letters_nothing_is_dropped,
    receiving_is_not_evaluated,
]
