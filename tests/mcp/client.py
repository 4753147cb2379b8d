"""Calls tools of an MCP server by the official SDK: `client.py CASE URL [TOKEN]`. Prints what came of each call, as JSON.

mcp 2 speaks protocol 2026-07-28 (`modern`) or 2025-11-25 (`legacy`); mcp 1 speaks the older one alone.
"""

import asyncio
import json
import sys

case, url, *rest = sys.argv[1:]
headers = {"authorization": f"Bearer {rest[0]}"} if rest else {}


def tell(**values):
    print(json.dumps(values), flush=True)


async def call(session, tool, arguments=None, **options):
    try:
        result = await session.call_tool(tool, arguments or {}, **options)
        failed = getattr(result, "is_error", getattr(result, "isError", False))
        tell(tool=tool, text=result.content[0].text, failed=failed)
    except Exception as error:
        shown = getattr(error, "error", error)
        tell(tool=tool, code=getattr(shown, "code", None), message=getattr(shown, "message", str(shown)), data=getattr(shown, "data", None))


async def calls(session):
    listed = await session.list_tools()
    tell(tools=sorted(tool.name for tool in listed.tools))
    for _ in range(3):
        await call(session, "search", {"words": "a fox"})
    await call(session, "where")
    steps = []

    async def progress(step, total, message=None):
        steps.append(step)

    await call(session, "slow", progress_callback=progress)
    tell(steps=steps)


async def modern(mode):
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as session:
            tell(protocol=session.protocol_version)
            await calls(session)


async def old():
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async with streamablehttp_client(url, headers=headers) as (read, write, _):
        async with ClientSession(read, write) as session:
            begun = await session.initialize()
            tell(protocol=begun.protocolVersion)
            await calls(session)


asyncio.run({"modern": lambda: modern("2026-07-28"), "legacy": lambda: modern("legacy"), "old": old}[case]())
