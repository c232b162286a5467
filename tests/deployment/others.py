"""Other deployments of the same code: a FIFO queue, and a function of one's own."""

import json

from emulator import REGION
from life import World, key_of

FIFO = "firstclaim-deployment-test-fifo"
GUARD = "firstclaim-deployment-test-guard"


def keep_the_order_of_a_thread(first: World) -> None:
    """A second stack beside the first one, with a FIFO queue."""
    world = World(first.root, first.emulator, first.target, FIFO)
    world.comments = first.comments
    world.parameters = {**first.parameters, "Fifo": "true", "Front": "HttpApi"}
    world.deploy()
    for queue in ("WorkQueueUrl", "DeadLetterQueueUrl"):
        assert world.attributes(world.outputs[queue])["FifoQueue"] == "true", queue
    # All on one issue, so that they are one message group.
    events = [world.comments.new() for _ in range(8)]
    for event in events:
        key_of(event.send(world.door))
        # A duplicate in between must not disturb the order.
        assert event.send(world.door).replayed
    world.applied(events)
    with world.target.lock:
        seen = [one["firstclaim-delivery"] for one in world.target.requests]
    wanted = [event.delivery for event in events]
    assert [one for one in seen if one in wanted] == wanted, seen
    world.sam("delete", "--stack-name", FIFO, "--no-prompts", "--region", REGION)


def guard_a_function_of_ones_own(world: World) -> None:
    """`examples/guard`, as its README says."""
    world.sam(
        "deploy",
        "--stack-name",
        GUARD,
        "--resolve-s3",
        "--capabilities",
        "CAPABILITY_IAM",
        "--no-progressbar",
        folder="examples/guard",
    )
    functions = world.emulator.client("lambda")
    found = world.cloudformation.describe_stack_resource(
        StackName=GUARD, LogicalResourceId="Guard"
    )
    name = found["StackResourceDetail"]["PhysicalResourceId"]

    def order(number: str) -> dict:
        event = json.dumps({"id": number, "amount": 5})
        answer = functions.invoke(FunctionName=name, Payload=event)
        receipt = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, receipt
        return receipt

    receipt = order("order-42")
    assert receipt["order"] == "order-42" and receipt["charged"] == 5, receipt
    # The receipt names the invocation that did the work: the second one did none.
    assert order("order-42") == receipt
    # Another amount under its id is another order, which must not get this receipt.
    event = json.dumps({"id": "order-42", "amount": 6})
    refused = functions.invoke(FunctionName=name, Payload=event)
    assert "FunctionError" in refused, refused
    assert b"firstclaim.Mismatch" in refused["Payload"].read()
    other = order("order-43")
    assert other["order"] == "order-43" and other["request"] != receipt["request"], other
    world.sam("delete", "--stack-name", GUARD, "--no-prompts", "--region", REGION)


OTHERS = [keep_the_order_of_a_thread, guard_a_function_of_ones_own]
