"""Goes through a deployment's life, from `sam deploy` to `sam delete`, and says what it saw."""

import os
import sys
import time
from pathlib import Path

from emulator import Emulator
from life import STEPS, World
from others import OTHERS
from rights import REMOVED
from target import Target


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    auth = os.environ.get("AUTH", "").lower() == "true"
    *life, end = STEPS
    steps = [*life, *(REMOVED if auth else []), *OTHERS, end]
    started = time.monotonic()
    with Emulator(root / "target/deploy/run", auth) as emulator, Target() as target:
        print(f"emulator: {emulator.endpoint}, IAM evaluation {'on' if auth else 'off'}", flush=True)
        world = World(root, emulator, target)
        for step in steps:
            begun = time.monotonic()
            try:
                step(world)
            except Exception:
                print(f"FAILED {step.__name__}\n{emulator.last_lines()}", flush=True)
                raise
            print(f"ok {step.__name__} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"deployment: {len(steps)} steps, all right, {time.monotonic() - started:.0f} s")
    print(f"{len(steps)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
