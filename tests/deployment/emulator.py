"""The AWS emulator as a process on loopback, with a folder of its own."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config

REGION = "us-east-1"

# What the stack is made of, and what `sam deploy` itself uses.
SERVICES = (
    "apigateway,cloudformation,dynamodb,iam,lambda,logs,monitoring,s3,secretsmanager,sqs,sts"
)


class Emulator:
    """Started on entering, ended on leaving."""

    def __init__(self, folder: Path, auth: bool):
        self.folder = folder
        self.auth = auth
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> "Emulator":
        for _ in range(3):
            self.start()
            try:
                until("the emulator's start", 60, self.answers)
                return self
            except RuntimeError as ended:
                # Perhaps somebody else took its port in between.
                failure = ended
            self.port = free_port()
            self.endpoint = f"http://127.0.0.1:{self.port}"
        raise failure

    def start(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "tmp").mkdir(parents=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            # Functions call back to it.
            "AWS_ENDPOINT_URL": self.endpoint,
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_REGION": REGION,
            "SERVICES": SERVICES,
            "AUTH": "true" if self.auth else "false",
            # It would listen on every address.
            "IOT_MTLS_ENABLED": "0",
        }
        self.log = self.folder / "emulator.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ministack"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __exit__(self, *_) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the emulator ended at its start\n{self.last_lines()}")
        try:
            with urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=5):
                return True
        except OSError:
            return False

    def client(self, service: str):
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def processes(self, function: str) -> list[int]:
        """The processes that run a function, by the name in their environment."""
        wanted = f"AWS_LAMBDA_FUNCTION_NAME={function}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                # It ended meanwhile, or is not ours to look at.
                continue
        return found

    def said(self, text: str) -> int:
        """How often the functions, whose output the emulator logs, have said this."""
        return self.log.read_text(errors="replace").count(text)

    def last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line[:2000] for line in lines[-60:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what: str, seconds: float, condition):
    """Waits for a condition and returns what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        met = condition()
        if met:
            return met
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds} s")
        time.sleep(0.1)
