"""The client of an agent: the official library, with a server that it starts itself.

    agent.py MODE SERVER [ARGUMENT...]    MODE is the library's: legacy, auto, or a revision

It prints what the two agreed on: {"protocol", "tools", "instructions"}. Then each line on stdin is a
tool call, {"tool", "arguments"}, and its answer is a line on stdout, {"is_error", "told"}, after one
{"progress"} for each word of that. The library checks every answer against the form that its tool
has announced; one that does not fit ends this program.
"""

import json
import sys

import anyio
from mcp import Client, StdioServerParameters


def say(what):
    print(json.dumps(what), flush=True)


async def progress(done, total, message):
    say({"progress": done, "total": total})


async def main(mode, server, arguments):
    parameters = StdioServerParameters(command=server, args=arguments)
    async with Client(parameters, mode=mode) as client:
        listed = await client.list_tools()
        say(
            {
                "protocol": client.protocol_version,
                "tools": [tool.name for tool in listed.tools],
                "instructions": client.instructions,
            }
        )
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            call = json.loads(line)
            result = await client.call_tool(
                call["tool"], call["arguments"], progress_callback=progress
            )
            say({"is_error": result.is_error, "told": result.structured_content})


anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:])
