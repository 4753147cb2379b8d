// POSTs bodies by Node's HTTP/2 client and prints one line for each request: the path, the size, and the status or the error.
//
// Usage: node_client.js BASE CA JOB...   (CA: a file, or `-` for prior knowledge; JOB: PATH:SIZE:COUNT)
'use strict';
const fs = require('fs');
const http2 = require('http2');
const { Readable } = require('stream');

const PART = Buffer.alloc(16384);
const TIMEOUT = 40_000;
// A client that waits in vain so often is not asked further.
const MAX_TIMEOUTS = 4;

function* body(size) {
  for (let left = size; left > 0; left -= PART.length) yield PART.subarray(0, Math.min(left, PART.length));
}

function connect(base, ca) {
  const session = http2.connect(base, ca === '-' ? {} : { ca: fs.readFileSync(ca) });
  // A lost connection shows at its streams.
  session.on('error', () => {});
  return session;
}

function post(session, path, size) {
  return new Promise((resolve) => {
    const request = session.request({ ':method': 'POST', ':path': path, 'content-length': String(size) });
    let status, error, ended = false;
    const timer = setTimeout(() => { resolve(`timeout (status ${status}, ended ${ended})`); request.destroy(); }, TIMEOUT);
    request.on('response', (headers) => { status = headers[':status']; });
    request.on('error', (thrown) => { error ??= thrown; });
    request.on('end', () => { ended = true; });
    request.on('close', () => {
      clearTimeout(timer);
      if (error) resolve(`${error.code ?? ''} ${error.message} (status ${status})`);
      else resolve(ended && status ? String(status) : `closed with code ${request.rstCode} (status ${status})`);
    });
    request.resume();
    Readable.from(body(size)).pipe(request);
  });
}

(async () => {
  const [base, ca, ...jobs] = process.argv.slice(2);
  let session = connect(base, ca);
  let timeouts = 0;
  for (const job of jobs) {
    const [path, size, count] = job.split(':');
    for (let number = 0; number < Number(count); number += 1) {
      if (session.closed || session.destroyed) session = connect(base, ca);
      const result = await post(session, path, Number(size));
      console.log(path, size, result);
      if (result.includes('timeout')) { timeouts += 1; break; }
    }
    if (timeouts >= MAX_TIMEOUTS) break;
  }
  process.exit(0);
})();
