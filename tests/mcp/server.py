"""An MCP server for tests, by the official SDK: of protocol 2026-07-28 and older (mcp 2), or of the older ones alone (mcp 1).

Prints its port. The tool `where` answers with the server's name, the first argument; `slow` reports progress first.
"""

import socket
import sys

import uvicorn

try:
    from mcp.server.mcpserver import Context, MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP as Server

name = sys.argv[1]
server = Server(name)


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


with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listener])
