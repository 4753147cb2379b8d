"""An MCP server for tests, by the official SDK: of protocol 2026-07-28 and older (mcp 2), or of the older ones alone (mcp 1).

Prints its port. The tool `where` answers with the server's name, the first argument; `slow` reports progress first; `wait`
reports progress, and ends once `release` is called. Events are kept, so that a stream can be resumed.
"""

import asyncio
import inspect
import socket
import sys

import uvicorn
from mcp.server.streamable_http import EventMessage, EventStore

try:
    from mcp.server.mcpserver import Context, MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP as Server


class Events(EventStore):
    """All events of all streams; an event's id is its place."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return f"{name}-{len(self.events)}"

    async def replay_events_after(self, last_event_id, send_callback):
        owner, place = last_event_id.rsplit("-", 1)
        assert owner == name, f"{name} is asked for an event of {owner}"
        stream = self.events[int(place) - 1][0]
        for index, (stream_id, message) in enumerate(self.events[int(place) :], int(place) + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, f"{name}-{index}"))
        return stream


name = sys.argv[1]
events = Events()
# mcp 1 takes the store of events here, mcp 2 with the application.
is_here = "event_store" in inspect.signature(Server.__init__).parameters
server = Server(name, **({"event_store": events} if is_here else {}))
released = asyncio.Event()


@server.tool()
def where() -> str:
    return name


@server.tool()
def search(words: str) -> str:
    return f"{name} found {words}"


@server.tool()
async def slow(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 3)
    return f"{name} is done"


@server.tool()
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    await released.wait()
    await ctx.report_progress(2, 2)
    return f"{name} has waited"


@server.tool()
async def release() -> str:
    released.set()
    return name


with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(**({} if is_here else {"event_store": events})), log_level="error")
    uvicorn.Server(config).run(sockets=[listener])
