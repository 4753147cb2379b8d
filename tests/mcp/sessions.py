"""Sessions at the same time: `sessions.py CASE URL`. Prints for each the servers that its calls reached, as JSON.

mcp 2 speaks protocol 2025-11-25 (`legacy`), mcp 1 that or an older one (`old`).
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager

case, url = sys.argv[1:]


@asynccontextmanager
async def legacy():
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        async with Client(streamable_http_client(url, http_client=http), mode="legacy") as session:
            yield session


@asynccontextmanager
async def old():
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def main():
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context({"legacy": legacy, "old": old}[case]()) for _ in range(4)]
        names = [[] for _ in sessions]
        for _ in range(6):
            for session, reached in zip(sessions, names):
                reached.append((await session.call_tool("where", {})).content[0].text)
        for reached in names:
            print(json.dumps({"names": reached}), flush=True)


asyncio.run(main())
