// Calls tools of an MCP server by the official SDK for TypeScript: `client.mjs MODULES URL [TOKEN]`. Prints as client.py does.
const [modules, url, token] = process.argv.slice(2);
const { Client } = await import(`${modules}/@modelcontextprotocol/sdk/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${modules}/@modelcontextprotocol/sdk/dist/esm/client/streamableHttp.js`);

const tell = (values) => console.log(JSON.stringify(values));
const headers = token ? { authorization: `Bearer ${token}` } : {};
const client = new Client({ name: "test", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
tell({ protocol: transport.protocolVersion });
const { tools } = await client.listTools();
tell({ tools: tools.map(({ name }) => name).sort() });

async function call(tool, args = {}, options = {}) {
  try {
    const result = await client.callTool({ name: tool, arguments: args }, undefined, options);
    tell({ tool, text: result.content[0].text, failed: result.isError ?? false });
  } catch (error) {
    tell({ tool, code: error.code ?? null, message: error.message });
  }
}

for (let round = 0; round < 3; round += 1) await call("search", { words: "a fox" });
await call("where");
const steps = [];
await call("slow", {}, { onprogress: ({ progress }) => steps.push(progress) });
tell({ steps });
await client.close();
