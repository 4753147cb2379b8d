// Sessions at the same time: `sessions.mjs MODULES URL`. Prints for each the servers that its calls reached; then for each
// what came of a call whose stream was lost after its first event, and resumed by another client.
const [modules, url] = process.argv.slice(2);
const { Client } = await import(`${modules}/@modelcontextprotocol/sdk/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${modules}/@modelcontextprotocol/sdk/dist/esm/client/streamableHttp.js`);

const tell = (values) => console.log(JSON.stringify(values));

async function begin(sessionId, protocolVersion) {
  const client = new Client({ name: "test", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(url), { sessionId });
  await client.connect(transport);
  if (protocolVersion) transport.setProtocolVersion(protocolVersion);
  return { client, transport, names: [] };
}

const call = (session, name, options) => session.client.callTool({ name, arguments: {} }, undefined, options);

const sessions = [];
for (let count = 0; count < 4; count += 1) sessions.push(await begin());
for (let round = 0; round < 6; round += 1) {
  for (const session of sessions) session.names.push((await call(session, "where")).content[0].text);
}
for (const { names } of sessions) tell({ names });

// The call waits at its server: its client is gone after the first event.
for (const session of sessions) {
  session.progress = [];
  const lost = call(session, "wait", {
    onprogress: ({ progress }) => session.progress.push(progress),
    onresumptiontoken: (token) => (session.token = token),
  });
  lost.catch(() => {});
  while (session.progress.length === 0 || !session.token) await new Promise((resolve) => setTimeout(resolve, 10));
  const { sessionId, protocolVersion } = session.transport;
  await session.client.close();
  session.next = { sessionId, protocolVersion };
}
for (const session of sessions) {
  const { sessionId, protocolVersion } = session.next;
  const again = await begin(sessionId, protocolVersion);
  await call(again, "release");
  const result = await call(again, "wait", { resumptionToken: session.token });
  tell({ text: result.content[0].text, progress: session.progress });
  await again.client.close();
}
