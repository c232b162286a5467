"""The steps of a deployment's life. Each one leaves the stack whole for the next."""

import json
import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from emulator import REGION, Emulator, until
from sender import SENDERS, Answer, Comments, Door, Event, look_up, operation
from target import Target

STACK = "firstclaim-deployment-test"

# How long an event may take from its acceptance to its effect. Much longer than it takes.
SOON = 60
# The same where a worker was killed: its lease and the message's visibility must end first.
TAKEOVER = 180


class World:
    """What the steps share."""

    def __init__(self, root: Path, emulator: Emulator, target: Target, stack: str = STACK):
        self.root = root
        self.stack = stack
        self.emulator = emulator
        self.target = target
        self.comments = Comments(root)
        self.sqs = emulator.client("sqs")
        self.dynamodb = emulator.client("dynamodb")
        self.cloudformation = emulator.client("cloudformation")
        self.outputs: dict[str, str] = {}
        self.operator: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.killed: Event | None = None

    def sam(
        self, *arguments: str, check: bool = True, folder: str = "."
    ) -> subprocess.CompletedProcess:
        """Runs SAM, in the repository's root, where its samconfig.toml counts, or below it."""
        environment = {**os.environ, "AWS_ENDPOINT_URL": self.emulator.endpoint}
        done = subprocess.run(
            ["sam", *arguments],
            cwd=self.root / folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=600,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"sam {' '.join(arguments)}\n{done.stdout}")
        return done

    def deploy(self, check: bool = True, **changed: str) -> subprocess.CompletedProcess:
        parameters = {**self.parameters, **changed}
        done = self.sam(
            "deploy",
            "--stack-name",
            self.stack,
            "--no-confirm-changeset",
            "--no-progressbar",
            "--parameter-overrides",
            *[f"{name}={value}" for name, value in parameters.items()],
            check=check,
        )
        if done.returncode == 0:
            self.parameters = parameters
            described = self.cloudformation.describe_stacks(StackName=self.stack)["Stacks"][0]
            outputs = described["Outputs"]
            self.outputs = {one["OutputKey"]: one["OutputValue"] for one in outputs}
            self.repair_the_mapping(int(parameters.get("MaximumConcurrency", "20")))
        return done

    def repair_the_mapping(self, concurrency: int) -> None:
        """CloudFormation makes a number of a parameter; the emulator leaves it a text, and its
        poller then fails to compare it."""
        functions = self.emulator.client("lambda")
        for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
            functions.update_event_source_mapping(
                UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": concurrency}
            )

    def firstclaim(self, *arguments: str, check: bool = True) -> str:
        """Runs this repository's command line on the deployed table, as the runbook says, with an
        operator's rights."""
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": self.emulator.endpoint,
            "FIRSTCLAIM_TABLE": self.outputs["ClaimsTableName"],
            "QUEUE_URL": self.outputs["WorkQueueUrl"],
            "DEAD_LETTER_URL": self.outputs["DeadLetterQueueUrl"],
            "SENDERS_SECRET_ARN": self.parameters["SendersSecretArn"],
            "TARGET_URL": self.parameters["TargetUrl"],
            "CLAIMS_WINDOW": "60d",
            **self.operator,
        }
        done = subprocess.run(
            [self.root / "target/debug/firstclaim", *arguments],
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"firstclaim {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def resource(self, name: str) -> str:
        found = self.cloudformation.describe_stack_resource(
            StackName=self.stack, LogicalResourceId=name
        )
        return found["StackResourceDetail"]["PhysicalResourceId"]

    @property
    def door(self) -> Door:
        """The deployed address. On AWS it has a name of its own; here the emulator tells it by the
        request's host."""
        host = urlsplit(self.outputs["WebhookUrl"]).hostname
        if ".execute-api." in host:
            host = f"{host.split('.')[0]}.execute-api.localhost:{self.emulator.port}"
        return Door(self.emulator.port, host)

    def record(self, key: str) -> dict | None:
        table = self.outputs["ClaimsTableName"]
        found = self.dynamodb.get_item(TableName=table, Key={"id": {"S": key}}, ConsistentRead=True)
        return found.get("Item")

    def attributes(self, queue: str) -> dict[str, str]:
        found = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
        return found["Attributes"]

    def applied(self, events: list[Event]) -> None:
        """Waits until each event had its effect, and sees that none had two."""
        deliveries = [event.delivery for event in events]

        def counts():
            counts = self.target.effects_of(deliveries)
            return all(counts) and counts

        assert until("the effects", SOON, counts) == [1] * len(events)

    def applied_under_one_key(self, events: list[Event]) -> None:
        """The same where workers may have been ended at any moment: what one of them had begun is
        taken over when its lease is over, and goes out again under the same key."""
        deliveries = [event.delivery for event in events]
        until("the effects", TAKEOVER, lambda: all(self.target.effects_of(deliveries)))
        for delivery in deliveries:
            requests = self.target.requests_of(delivery)
            assert len({one["idempotency-key"] for one in requests}) == 1, requests
            attempts = [one["firstclaim-attempt"] for one in requests]
            assert len(set(attempts)) == len(attempts), requests


def key_of(answer: Answer) -> str:
    assert answer.status == 202, answer
    return json.loads(answer.body)["key"]


def refuse_wrong_parameters(world: World) -> None:
    secrets = world.emulator.client("secretsmanager")
    secret = secrets.create_secret(Name="senders", SecretString=json.dumps(SENDERS))
    world.parameters = {"TargetUrl": world.target.url, "SendersSecretArn": secret["ARN"]}
    for name, wrong in [
        # By a rule, and by a pattern.
        ("OnLapse", "hold"),
        ("SendersSecretArn", "senders"),
    ]:
        refused = world.deploy(check=False, **{name: wrong})
        assert refused.returncode != 0, f"{name}={wrong} was deployed"
    tables = world.dynamodb.list_tables()["TableNames"]
    assert tables == [], f"something was created: {tables}"


def deploy_the_stack(world: World) -> None:
    world.deploy()
    table = world.outputs["ClaimsTableName"]
    described = world.dynamodb.describe_table(TableName=table)["Table"]
    assert described["KeySchema"] == [{"AttributeName": "id", "KeyType": "HASH"}], described
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST", described
    # The emulator's CloudFormation makes tables without their TTL: what was deployed says it.
    template = world.cloudformation.get_template(StackName=STACK, TemplateStage="Processed")
    body = template["TemplateBody"]
    body = json.loads(body) if isinstance(body, str) else body
    ttl = body["Resources"]["ClaimsTable"]["Properties"]["TimeToLiveSpecification"]
    assert ttl["AttributeName"] == "expiration" and ttl["Enabled"] in (True, "true"), ttl
    work = world.attributes(world.outputs["WorkQueueUrl"])
    dead = world.attributes(world.outputs["DeadLetterQueueUrl"])
    redrive = json.loads(work["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == dead["QueueArn"], redrive
    assert int(redrive["maxReceiveCount"]) == 20, redrive
    assert work["VisibilityTimeout"] == "360", work
    mappings = world.emulator.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    assert [one["EventSourceArn"] for one in mappings] == [work["QueueArn"]], mappings
    assert mappings[0]["FunctionResponseTypes"] == ["ReportBatchItemFailures"], mappings
    # The emulator writes no access log; that it is asked for can be seen.
    stages = world.emulator.client("apigatewayv2").get_stages(ApiId=world.resource("Api"))["Items"]
    logs = world.outputs["AccessLogGroup"]
    assert logs in stages[0]["AccessLogSettings"]["DestinationArn"], stages
    filters = world.emulator.client("logs").describe_metric_filters(logGroupName=logs)
    assert len(filters["metricFilters"]) == 1, filters


def name_an_operator(world: World) -> None:
    """Somebody who has the stack's policy for operators, and no other rights."""
    iam = world.emulator.client("iam")
    iam.create_user(UserName="operator")
    iam.attach_user_policy(UserName="operator", PolicyArn=world.outputs["OperatorPolicyArn"])
    key = iam.create_access_key(UserName="operator")["AccessKey"]
    world.operator = {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }


def check_the_deployment(world: World) -> None:
    """`firstclaim check` finds no fault in what the template made, but the one that the emulator
    makes: it leaves the table without its TTL. Set as the template says, all is well."""
    table = world.outputs["ClaimsTableName"]
    world.dynamodb.update_time_to_live(
        TableName=table,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiration"},
    )
    auth = world.emulator.auth
    said = world.firstclaim("check", "--json", check=not auth)
    lines = [json.loads(line) for line in said.splitlines()]
    status = {line["check"]: line["status"] for line in lines}
    for checked in ("table", "key-schema", "ttl", "claim", "queue", "redrive", "retention"):
        assert status[checked] == "ok", lines
    # An operator may not read secrets.
    assert status["senders"] == ("fault" if auth else "ok"), lines


def answer_what_is_refused(world: World) -> None:
    event = world.comments.new()
    assert event.send(world.door, secret="not the secret, but as long").status == 401
    answer = world.door.request("POST", "/webhooks/nobody", {}, b"{}")
    assert answer.status == 404, answer
    assert look_up(world.door, "/operations/unknown").status == 404
    assert world.target.requests == []


def apply_each_event_once(world: World) -> None:
    events = [world.comments.new() for _ in range(12)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda event: event.send(world.door), events * 3))
    for number, event in enumerate(events):
        bodies = {answer.body for answer in answers[number :: len(events)]}
        keys = {key_of(answer) for answer in answers[number :: len(events)]}
        assert len(bodies) == len(keys) == 1, bodies
    world.applied(events)
    # Redelivered when all is over: the same bytes, and nothing runs.
    for number, event in enumerate(events):
        again = event.send(world.door)
        assert again.replayed and again.body == answers[number].body, again
    # Under another delivery id it passes the door, and the worker knows it.
    other = Event("deployment-test-other-subscription", events[0].body)
    assert key_of(other.send(world.door)) == key_of(answers[0])
    queue_is_empty(world)
    world.applied(events)
    assert world.target.effects_of([other.delivery]) == [0]


def queue_is_empty(world: World) -> None:
    counts = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")

    def empty():
        attributes = world.attributes(world.outputs["WorkQueueUrl"])
        return all(attributes[count] == "0" for count in counts)

    until("an empty queue", SOON, empty)


def follow_an_operation(world: World) -> None:
    first = operation(world.door, "deploy-1", {"service": "website"})
    assert first.status == 202, first
    again = operation(world.door, "deploy-1", {"service": "website"})
    assert again.replayed and again.body == first.body, again
    other = operation(world.door, "deploy-1", {"service": "shop"})
    assert other.status == 422, other
    location = urlsplit(first.headers["location"]).path

    def done():
        status = json.loads(look_up(world.door, location).body)
        return status["status"] == "done"

    until("the operation's end", SOON, done)


def kill_a_worker(world: World) -> None:
    """Kills the worker while the target hangs. What follows takes a lease, a minute; the steps
    below go on meanwhile, and `see_the_killed_one_taken_over` looks at it."""
    # After a crash SQS shows the message again when its visibility ends. Six minutes are too long
    # for a test; at twenty seconds the lease is met while it runs, too.
    world.sqs.set_queue_attributes(
        QueueUrl=world.outputs["WorkQueueUrl"], Attributes={"VisibilityTimeout": "20"}
    )
    event = world.comments.new()
    world.target.hanging.add(event.delivery)
    key = key_of(event.send(world.door))
    until("the call", SOON, lambda: world.target.requests_of(event.delivery))
    workers = world.emulator.processes(world.resource("QueueFunction"))
    assert workers, "no process of the queue function"
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    record = world.record(key)
    assert record["status"]["S"] == "INPROGRESS", record
    world.killed = event


def redrive_a_dead_letter(world: World) -> None:
    event = world.comments.new()
    world.target.refused[event.delivery] = 422
    key = key_of(event.send(world.door))
    letter = take_letter(world)
    attributes = {
        name: value["StringValue"] for name, value in letter["MessageAttributes"].items()
    }
    assert attributes["reason"] == "permanent" and attributes["firstclaim_key"] == key, attributes
    assert until("the failure", SOON, lambda: world.record(key)["status"]["S"] == "FAILED")
    del world.target.refused[event.delivery]

    # Its record says that it failed for good: redriven as it is, it does not run.
    redrive(world, letter)
    until("the worker's word", SOON, lambda: world.emulator.said('"outcome":"replayed_failure"'))
    assert world.target.effects_of([event.delivery]) == [0]
    # Somebody decides that it may.
    settle_rerun(world, key)
    redrive(world, letter)
    world.applied([event])
    until("its record", SOON, lambda: world.record(key)["status"]["S"] == "COMPLETED")


def take_letter(world: World) -> dict:
    def receive():
        found = world.sqs.receive_message(
            QueueUrl=world.outputs["DeadLetterQueueUrl"],
            MessageAttributeNames=["All"],
            WaitTimeSeconds=1,
        )
        return found.get("Messages")

    letter = until("a dead letter", SOON, receive)[0]
    world.sqs.delete_message(
        QueueUrl=world.outputs["DeadLetterQueueUrl"], ReceiptHandle=letter["ReceiptHandle"]
    )
    return letter


def redrive(world: World, letter: dict) -> None:
    """The emulator has no StartMessageMoveTask: a letter is sent to the queue again, under a new
    message id as a redrive gives it."""
    world.sqs.send_message(QueueUrl=world.outputs["WorkQueueUrl"], MessageBody=letter["Body"])


def settle_rerun(world: World, key: str) -> None:
    world.firstclaim("settle", key, "--rerun", "--yes", "--why", "the target takes it now")


def update_while_events_flow(world: World) -> None:
    sent: list[Event] = []
    cut_off: list[Event] = []
    wrong: list[Answer] = []
    over = threading.Event()

    def flow():
        while not over.wait(0.2):
            event = world.comments.new()
            answer = event.send(door)
            while answer.cut_off and not over.is_set():
                # What its sender does, too: the same delivery again.
                cut_off.append(event)
                answer = event.send(door)
            sent.append(event)
            if answer.status != 202:
                wrong.append(answer)

    door = world.door
    flowing = threading.Thread(target=flow)
    flowing.start()
    try:
        until("events before the update", SOON, lambda: len(sent) > 5)
        world.deploy(LogLevel="debug", MaximumConcurrency="5")
        before = len(sent)
        until("events after the update", SOON, lambda: len(sent) > before + 5)
    finally:
        over.set()
        flowing.join()
    assert not wrong, f"{len(wrong)} of {len(sent)} were not accepted: {wrong[:3]}"
    # Two functions are updated, each in its code and in its settings.
    assert len(cut_off) <= 4, f"{len(cut_off)} of {len(sent)} requests were cut off"
    world.applied_under_one_key(sent)
    configuration = world.emulator.client("lambda").get_function_configuration(
        FunctionName=world.resource("QueueFunction")
    )
    assert configuration["Environment"]["Variables"]["RUST_LOG"] == "debug", configuration


def see_the_killed_one_taken_over(world: World) -> None:
    event = world.killed
    until("the takeover", TAKEOVER, lambda: all(world.target.effects_of([event.delivery])))
    requests = world.target.requests_of(event.delivery)
    attempts = [int(one["firstclaim-attempt"]) for one in requests]
    # The second one, unless the update has ended a worker that had just taken over.
    assert attempts[0] == 1 and len(attempts) > 1, requests
    assert attempts == sorted(set(attempts)), requests
    assert len({one["idempotency-key"] for one in requests}) == 1, requests


def change_the_front(world: World) -> None:
    """A Function URL in place of the HTTP API, in the same stack."""
    world.deploy(Front="FunctionUrl")
    assert ".lambda-url." in world.outputs["WebhookUrl"], world.outputs
    events = [world.comments.new() for _ in range(3)]
    for event in events:
        key_of(event.send(world.door))
    world.applied(events)
    assert events[0].send(world.door).replayed


def delete_the_stack(world: World) -> None:
    table = world.outputs["ClaimsTableName"]
    queues = [world.outputs["WorkQueueUrl"], world.outputs["DeadLetterQueueUrl"]]
    iam = world.emulator.client("iam")
    iam.detach_user_policy(UserName="operator", PolicyArn=world.outputs["OperatorPolicyArn"])
    world.sam("delete", "--stack-name", STACK, "--no-prompts", "--region", REGION)
    functions = world.emulator.client("lambda").list_functions()["Functions"]
    assert functions == [], functions
    # What was done is not forgotten, and what waits is not lost.
    assert world.dynamodb.describe_table(TableName=table)["Table"]["TableStatus"] == "ACTIVE"
    for queue in queues:
        assert world.attributes(queue)["QueueArn"]


STEPS = [
    refuse_wrong_parameters,
    deploy_the_stack,
    name_an_operator,
    check_the_deployment,
    answer_what_is_refused,
    apply_each_event_once,
    follow_an_operation,
    kill_a_worker,
    redrive_a_dead_letter,
    update_while_events_flow,
    see_the_killed_one_taken_over,
    change_the_front,
    delete_the_stack,
]
