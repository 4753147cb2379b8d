// The dashboard: calls the admin API (docs/api.md) once a second and draws the responses.
// Keys, paths and names come from clients and the config file: they are always inserted as text, never as markup.
"use strict";

const PERIOD = 1000; // ms between two rounds
const TIMEOUT = 4000, LONG_TIMEOUT = 16000; // ms for one response; the longer one is for changes, and for reports of usage
const USAGE_PERIOD = 10000; // ms between two reports of usage: one may read a hundred thousand consumers
const KEPT = 300; // seconds of history
const FRESH = 10; // seconds: the span of "now" in sentences
const OUTAGE = 0.05; // the share of failing requests that is an outage, as in the status for backends
const REST = 2500; // ms for which rows keep their order after the pointer moved over them, so that a click hits the right row
const MAX_ROWS = 200; // rows of a table after "Show all"
const SHOWN_SERVERS = 12; // rows of backends up to which all servers are shown
const SHORT = 60; // seconds that a curve shows at least, so that the times below a short history have room
const SHOWN_CURVES = 5, SHOWN_UNITS = 2, SHOWN_PLACES = 2, MAX_REFUSALS = 40, MINUTE = 60;
const MAX_CONSUMERS = 100000; // of a report of usage: the API's bound of `top`
// The meanings of colours. The legend of the page lists them; style.css defines them.
const ADMITTED = 1, DELAYED = 2, LOST = 3, SHADOW = 4, PLAIN = 5;
// The dashes that distinguish curves of one colour. style.css draws the same dashes in the legends of charts.
const DASHES = [[], [7, 4], [2, 3], [12, 3, 2, 3], [4, 2]];

// ---- words and elements ----

const $ = (id) => document.getElementById(id);

/** `make("td.n", …)`: texts and nodes become children; a plain object sets properties. */
function make(tag, ...parts) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const part of parts) typeof part === "string" || part instanceof Node ? made.append(part) : Object.assign(made, part);
  return made;
}

/** Writes only a changed text, so that a selection is kept. */
const write = (node, text) => node.textContent !== text && (node.textContent = text);

const strong = (text) => make("strong", text);
/** A link to a section of the page. */
const to = (section, ...parts) => make("a", { href: "#" + section }, ...parts);
/** On a phone, sections open by their headings, and tables show fewer rows. */
const narrow = matchMedia("(max-width: 640px)");
const shownRows = () => narrow.matches ? 4 : 8;
/** Text from the gateway as nodes: text between backticks becomes `code` elements. */
const prose = (text) => text.split(/`([^`\n]+)`/).map((part, index) => index % 2 ? make("code", part) : part);
const written = new WeakMap();
/** As `write`, with backticks rendered. */
function writeProse(node, text) {
  if (written.get(node) === text) return;
  written.set(node, text);
  node.replaceChildren(...prose(text));
}
/**
 * As `replaceChildren`, but an element of the same kind stays, with the new text: a link keeps the focus, and is not replaced while it is pressed.
 * Where other parts come, the link with the focus stays if one of them leads to the same section.
 */
function refresh(parent, parts) {
  const nodes = parts.map((part) => typeof part === "string" ? document.createTextNode(part) : part);
  const old = [...parent.childNodes];
  if (nodes.length !== old.length || nodes.some((node, at) => node.nodeName !== old[at].nodeName)) {
    const focused = old.find((node) => node.hash && node === document.activeElement);
    const at = focused ? nodes.findIndex((node) => node.hash === focused.hash) : -1;
    if (at < 0) return parent.replaceChildren(...nodes);
    for (const node of old) if (node !== focused) node.remove();
    write(focused, nodes[at].textContent);
    focused.before(...nodes.slice(0, at));
    return focused.after(...nodes.slice(at + 1));
  }
  nodes.forEach((node, at) => {
    if (node.isEqualNode(old[at])) return;
    if (node.childElementCount || old[at].childElementCount || node.hash !== old[at].hash) old[at].replaceWith(node);
    else write(old[at], node.textContent);
  });
}
const button = (text, onclick, ariaLabel = text) => make("button", { onclick, ariaLabel }, text);
const count = (number) => number?.toLocaleString("en") ?? "–";
const rate = (number) => number >= 10 ? count(Math.round(number)) : count(number && Math.round(number * 10) / 10);
const share = (part, whole) => Math.round(100 * part / (whole || 1)) + "%";
const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const keyText = (one) => one.key === null ? one.id : one.key.join(" · ") || "everyone"; // as in the API: the only key of a limit with `key = "global"`
const sum = (numbers) => numbers.reduce((all, number) => all + (number ?? 0), 0);
const last = (list) => list?.length ? list[list.length - 1] : null;
/** The newest value of the last `FRESH` seconds that is not null; else null. */
const fresh = (list) => last((list ?? []).slice(-FRESH).filter((value) => value !== null));
/** The mean over the last `FRESH` seconds. */
const lately = (list) => list?.length ? sum(list.slice(-FRESH)) / Math.min(FRESH, list.length) : 0;

const when = (time) => Math.abs(Date.now() / 1000 - time) < 43200 ? clock(time) : new Date(time * 1000).toLocaleString("en-GB");

function span(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= size) return Math.floor(seconds / size) + " " + unit;
  return Math.max(0, Math.round(seconds)) + " s";
}

const latency = (ms) => ms < 1000 ? rate(ms) + " ms" : milliseconds(ms);
const milliseconds = (ms) => ms === null ? "never" : ms === 0 ? "now" : ms < 1000 ? Math.round(ms) + " ms" : ms < 60000 ? (ms / 1000).toFixed(1) + " s" : span(ms / 1000);

// ---- API calls ----

const fault = (status, message) => Object.assign(new Error(message), { status });

/** The gateway's response, if it is one of success. */
async function send(path, method, body, timeout) {
  const headers = {};
  const token = sessionStorage.getItem("tollgate-token");
  if (token) headers.authorization = "Bearer " + token;
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch("api/v1/" + path, {
    method, headers, body: body && JSON.stringify(body), cache: "no-store", redirect: "error",
    signal: AbortSignal.timeout(timeout),
  }).catch(() => null);
  if (!answer) throw fault(0, "The gateway does not answer.");
  if (answer.ok) return answer;
  const content = await answer.json().catch(() => ({}));
  throw fault(answer.status, content.detail ?? content.faults?.join("\n") ?? answer.statusText);
}

async function ask(path, method = "GET", body = null) {
  const answer = await send(path, method, body, method === "GET" ? TIMEOUT : LONG_TIMEOUT);
  return answer.json().catch(() => ({}));
}

const limitPath = (limit) => "limits/" + encodeURIComponent(limit) + "/keys";
const keyPath = (limit, key) => limitPath(limit) + "/" + key.split(",").map((part) => encodeURIComponent(part.trim())).join(",");

let silence = 0;
function say(text) {
  ([...document.querySelectorAll("dialog[open]")].pop() ?? document.body).append($("said")); // inside an open dialog, since a dialog makes the rest of the page inert
  writeProse($("said"), text);
  clearTimeout(silence);
  silence = setTimeout(() => writeProse($("said"), ""), 7000);
}

/** Sends one change that the operator requested, and shows its result. */
async function act(path, method, body, done) {
  try {
    const answer = await ask(path, method, body);
    say(done(answer));
    return answer;
  } catch (fault) {
    if (fault.status === 401) askToken();
    else say(fault.message);
    if (fault.status === undefined) throw fault;
    return null;
  } finally {
    soon();
  }
}

// ---- history ----

/** Values by second: `time`, and lists of the same length by section and name. */
const nothingYet = (started, config) => ({ started, config, seq: null, time: [], all: {}, store: {}, routes: {}, limits: {}, upstreams: {} });
let past = nothingYet(null, null);

function remember(answer) {
  const first = answer.seq - answer.count;
  if (past.seq !== null && (answer.started !== past.started || answer.config !== past.config || first !== past.seq)) {
    past = nothingYet(null, null); // the response does not continue this history: the next round requests all of it
    return;
  }
  if (past.seq === null) past = nothingYet(answer.started, answer.config);
  const before = past.time.length;
  for (let at = answer.count - 1; at >= 0; at--) past.time.push(answer.time - at);
  past.time = past.time.slice(-KEPT);
  for (const section of ["all", "store", "routes", "limits", "upstreams"]) join(past[section], answer[section], before);
  past.seq = answer.seq;
}

/** Appends to lists at any depth. A name that is new, or is gone, has nulls where the others have numbers. */
function join(old, news, before) {
  for (const name of new Set([...Object.keys(old), ...Object.keys(news)])) {
    const [had, got] = [old[name], news[name]];
    if (name === "servers") old.servers = got ?? [];
    else if (!Array.isArray(had ?? got)) join(old[name] ??= {}, got ?? {}, before);
    else {
      const list = (had ?? Array(before).fill(null)).concat(got ?? []).slice(-KEPT);
      old[name] = list.concat(Array(past.time.length - list.length).fill(null));
    }
  }
}

// ---- tables ----

const touched = new WeakMap();

/** One row per item, identified by its name. Rows under a moving pointer keep their order; a row with the focus is not removed. */
function fill(id, items, name, build, update) {
  const body = $(id).tBodies[0];
  if (!touched.has(body)) {
    touched.set(body, -REST);
    for (const kind of ["pointermove", "pointerdown"]) body.addEventListener(kind, (event) => touched.set(body, event.timeStamp));
  }
  const rests = performance.now() - touched.get(body) < REST;
  const focus = document.activeElement;
  const gone = new Map([...body.rows].map((row) => [row.dataset.name, row]));
  items.forEach((item, index) => {
    const known = gone.get(name(item));
    const row = known ?? build(item);
    gone.delete(name(item));
    row.dataset.name = name(item);
    label(row, id);
    if (!known && rests) body.append(row);
    else if (!rests && body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
    update(row, item);
  });
  if (!rests) for (const row of gone.values()) if (!row.contains(document.activeElement)) row.remove();
  if (focus !== document.activeElement && body.contains(focus)) focus.focus({ preventScroll: true });
}

/** Gives each cell the label of its column. A narrow page shows the labels instead of the table's head. */
function label(row, id) {
  const heads = $(id).tHead.rows[0].cells;
  for (const cell of row.cells) cell.dataset.label = heads[cell.cellIndex].textContent;
  return row;
}

const opened = new Set();

/** As `fill`, but of a long list only a few rows, the first ones, until "Show all" is pressed. */
const list = (id, items, ...how) => listFew(id, items, items.slice(0, shownRows()), ...how);

function listFew(id, items, few, ...how) {
  let more = $(id + "-more");
  if (!more) {
    more = make("button.more", { id: id + "-more", type: "button", onclick: () => {
      if (!opened.delete(id)) opened.add(id);
      soon();
    } });
    $(id).parentElement.after(more);
  }
  more.hidden = items.length <= few.length;
  more.ariaExpanded = String(opened.has(id));
  write(more, opened.has(id) ? few.length === shownRows() ? `Show the first ${few.length}` : "Show fewer" : `Show all ${count(items.length)}`);
  $(id).parentElement.hidden = !items.length;
  fill(id, opened.has(id) ? items.slice(0, MAX_ROWS) : few, ...how);
}

const cells = (row, texts) => texts.forEach((text, index) => text !== null && write(row.cells[index], text));

const number = () => make("td.n");

// ---- sections ----

/** What a section says while it is closed. */
const gist = (section, text) => write($(section).querySelector(".gist"), text);

function setOpen(section, open) {
  section.classList.toggle("closed", !open);
  section.querySelector(".folder")?.setAttribute("aria-expanded", String(open));
}

/** Puts a button into the heading of each section of a phone. The keys are open at first: they tell who it is. */
function foldSections() {
  for (const section of document.querySelectorAll(".fold")) {
    const title = section.querySelector("h2 span"), heading = title.closest("h2");
    const tail = heading.querySelector(".gist") ?? make("span.gist");
    if (!heading.contains(tail)) section.classList.toggle("closed", section.id !== "keys-section");
    heading.replaceChildren(...narrow.matches ? [make("button.folder", { type: "button", onclick: () => setOpen(section, section.classList.contains("closed")) }, title), tail] : [title, tail]);
    setOpen(section, !section.classList.contains("closed"));
  }
}

// A link opens the section that it leads to.
addEventListener("click", (event) => {
  const target = event.target.closest?.("a[href^='#']");
  const section = target && document.querySelector(target.hash);
  if (!section?.matches(".fold")) return;
  if (target.closest("#sentence")) choose(null); // the sentence is about the limit that refuses most
  setOpen(section, true);
});

// ---- charts ----

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  constructor(id, title, nothing, height = 78) {
    Object.assign(this, { figure: $("chart-" + id), title, nothing, height, plot: null, names: "" });
    this.caption = make("figcaption");
    this.box = make("div");
    this.figure.append(this.caption, this.box);
    new ResizeObserver(() => {
      if (!this.figure.clientWidth || !this.curves) return;
      if (this.plot) this.plot.setSize(this.size());
      else this.draw(this.time, this.curves);
    }).observe(this.figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.names = ""));
  }

  size() { return { width: this.figure.clientWidth, height: this.height }; }

  /** `curves`: name, colour (its meaning), index in `DASHES`, values, and whether the right-hand scale applies. Curves that are 0 throughout are a line of text. */
  draw(time, curves) {
    Object.assign(this, { time, curves });
    const flat = !curves.some(({ values }) => values.some(Boolean));
    this.figure.classList.toggle("flat", flat);
    if (flat) return this.collapse();
    if (!this.figure.clientWidth) return; // in a closed section
    const names = curves.map((curve) => curve.name).join("\n");
    if (names !== this.names || !this.plot) this.rebuild(names);
    this.plot.setData([time, ...curves.map((curve) => curve.values)]);
    if (this.plot.cursor.idx == null) this.showValues(null);
  }

  collapse() {
    this.plot?.destroy();
    this.plot = null;
    if (this.names !== null) this.caption.replaceChildren(strong(this.title), make("span.note", this.nothing));
    this.names = null;
  }

  rebuild(names) {
    this.names = names;
    this.plot?.destroy();
    this.values = this.curves.map(() => make("span"));
    this.caption.replaceChildren(make("strong", this.title), (this.at = make("span.note")),
      ...this.curves.map((curve, index) => make(`i.c${curve.colour}.d${curve.dash ?? 0}`, curve.name + " ", this.values[index])));
    const axis = { stroke: css("--quiet"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const short = (_, marks) => marks.map((mark) => new Intl.NumberFormat("en", { notation: "compact" }).format(mark));
    const range = (_, low, high) => [0, Math.max(1, (high ?? 0) * 1.1)];
    this.plot = new uPlot({
      ...this.size(), legend: { show: false }, padding: [6, this.curves.some((curve) => curve.right) ? 14 : 28, 0, 0],
      cursor: { sync: { key: "tollgate" }, drag: { x: false }, y: false },
      scales: { x: { range: (_, first, end) => [Math.min(first, end - SHORT), end] }, y: { range }, right: { range } },
      axes: [
        { ...axis, size: 22, gap: 3, space: 72, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300], values: (_, marks) => marks.map((mark) => marks[1] - marks[0] < 60 ? clock(mark) : clock(mark).slice(0, 5)) },
        { ...axis, size: 44, gap: 4, space: 22, values: short },
        { ...axis, size: 40, gap: 4, space: 22, values: short, side: 1, scale: "right", show: this.curves.some((curve) => curve.right), grid: { show: false } },
      ],
      series: [{}, ...this.curves.map((curve) => ({
        stroke: css("--c" + curve.colour), width: 1.6, scale: curve.right ? "right" : "y", points: { show: false }, dash: DASHES[curve.dash ?? 0],
        fill: curve.fill ? css("--c" + curve.colour) + "26" : undefined,
      }))],
      hooks: { setCursor: [(plot) => this.showValues(plot.cursor.idx ?? null)] },
    }, [this.time, ...this.curves.map((curve) => curve.values)], this.box);
  }

  /** The values under the cursor; without a cursor, the newest. */
  showValues(index) {
    const at = index ?? this.time.length - 1;
    write(this.at, index === null ? "" : clock(this.time[at] ?? 0));
    this.curves.forEach((curve, number) => write(this.values[number], rate(curve.values[at])));
  }
}

function drawCharts() {
  const { time } = past;
  const route = $("route").value;
  const lists = route && past.routes[route] ? past.routes[route] : past.all;
  const nothing = time.map(() => null);
  const curve = (name, colour, values, more = {}) => ({ name, colour, values: values ?? nothing, ...more });
  charts.requests.draw(time, [curve("admitted", ADMITTED, lists.admitted, { fill: true }), curve("delayed", DELAYED, lists.delayed), curve("refused", LOST, lists.refused), curve("failed", LOST, lists.failed, { dash: 2 })]);
  charts.limits.draw(time, busiest(past.limits, "refused", isShadow).map(([name, of], dash) => curve(isShadow(name) ? name + " (shadow)" : name, isShadow(name) ? SHADOW : LOST, of.refused, { dash })));
  const held = busiest(past.limits, "held").filter(([, of]) => of.held).slice(0, SHOWN_PLACES);
  charts.places.figure.hidden = !held.length;
  charts.places.draw(time, held.flatMap(([name, of], dash) => [curve(`${name}, in flight`, ADMITTED, of.held, { dash }), curve(`${name}, waiting`, DELAYED, of.waiting, { dash }), ...of.found_max ? [curve(`${name}, most`, PLAIN, of.found_max, { dash })] : []]));
  const settling = busiest(past.limits, "units").filter(([, of]) => of.units).slice(0, SHOWN_UNITS);
  charts.units.figure.hidden = !settling.length;
  charts.units.draw(time, settling.flatMap(([name, of], dash) => [curve(`${name}, units`, PLAIN, of.units, { dash }), curve(`${name}, requests (right)`, ADMITTED, of.settled, { dash, right: true })]));
  charts.latency.draw(time, [curve("p50", PLAIN, lists.p50_ms, { dash: 1 }), curve("p99", PLAIN, lists.p99_ms)]);
  charts.delay.figure.hidden = !lists.delay_p99_ms?.some((delay) => delay !== null);
  charts.delay.draw(time, [curve("p50", DELAYED, lists.delay_p50_ms, { dash: 1 }), curve("p99", DELAYED, lists.delay_p99_ms)]);
  charts.upstreams.draw(time, busiest(past.upstreams, "answers").map(([name, of], dash) => curve(name, PLAIN, of.p99_ms, { dash })));
  charts.store.draw(time, [curve("counters", PLAIN, past.store.keys), ...past.store.evictions?.some(Boolean) ? [curve("evictions/s (right)", PLAIN, past.store.evictions, { right: true, dash: 2 })] : []]);
  gist("curves-section", `${rate(last(past.all.admitted))}/s admitted, ${rate(last(past.all.refused))}/s refused`);
}

/** `a:80 ejected (connection refused), b:80 unhealthy`, and the number of servers. */
function downServers(of) {
  const servers = of.servers ?? [];
  const down = servers.filter((server) => !server.up);
  const text = (server) => `${server.server} ${server.why}` + (server.reason ? ` (${server.reason})` : "");
  return { all: servers.length, down: down.length, which: down.slice(0, 3).map(text).join(", ") };
}

const CLASSES = ["2xx", "3xx", "4xx", "5xx"];
/** The sum of the last minute. */
const minuteOf = (list) => sum((list ?? []).slice(-MINUTE));

/** The entries with the highest sums of `list`. Entries that are `minor` come after all others. */
function busiest(entries, list, minor = () => false) {
  const weighed = Object.entries(entries).map((entry) => [minor(entry[0]), sum(entry[1][list] ?? []), entry]);
  const chosen = weighed.sort((a, b) => a[0] - b[0] || b[1] - a[1]).slice(0, SHOWN_CURVES);
  return chosen.sort((a, b) => a[0] - b[0] || (a[2][0] < b[2][0] ? -1 : 1)).map(([, , entry]) => entry); // by name, so that dashes stay
}

// ---- the current state ----

let now = { status: null, limits: [], keys: null, suspects: null, bans: null, routes: { config: null, list: [] } };
let refusals = { started: null, seq: null, list: [] };
let chosen = null; // the limit that the operator chose; null: the one that refuses most
const isShadow = (name) => now.limits.find((limit) => limit.name === name)?.mode === "shadow";
/** Refusals that clients saw: not those of a limit that is in shadow for their keys. */
const enforced = ({ refused, in_shadow }) => refused - in_shadow;
const refusesNow = (name) => lately(past.limits[name]?.refused) - lately(past.limits[name]?.in_shadow);
const percent = (of) => `${Math.round(of * 1e6) / 1e4} %`;
const shadowTag = (title = "A shadow limit refuses no request: its counts are the requests that it would have refused.") => make("span.tag.shadow", { title }, "shadow");
const trialTag = (of) => make("span.tag.shadow", { title: "The limit refuses requests of this share of its keys. For the other keys it is in shadow: their refusals are only counted." }, `trial ${percent(of)}`);
/** What tells that a limit does not refuse all that exceeds it. */
const modeTag = ({ mode, trial }) => mode === "shadow" ? shadowTag() : trial !== null && trial < 1 ? trialTag(trial) : "";

/** The enforced limit that refuses most: now, else in the last minute. */
function worst() {
  const weight = (limit) => refusesNow(limit.name) * 1e9 + enforced(limit.minute);
  const live = now.limits.filter((limit) => limit.mode === "enforce" && weight(limit) > 0);
  return live.sort((a, b) => weight(b) - weight(a))[0] ?? null;
}

const shownLimit = () => now.limits.some((limit) => limit.name === chosen) ? chosen : worst()?.name ?? inOrder(now.limits)[0]?.name ?? null;

/** Limits that refused requests first. Within both groups, enforced limits come before shadows, since only enforced limits affect clients. */
function inOrder(limits) {
  const rank = ({ mode, minute, hour }) => (minute.refused || hour.refused ? 0 : 2) + (mode === "shadow" ? 1 : 0);
  return [...limits].sort((a, b) => rank(a) - rank(b) || b.minute.refused - a.minute.refused || b.hour.refused - a.hour.refused);
}

function drawFacts() {
  const { status } = now;
  const reload = status.last_reload;
  $("facts").replaceChildren(
    make("b", status.life === "draining" ? "draining" : "serving"), ` ${status.version}, up ${span(status.time - status.started)}, ${status.workers} workers · file `,
    make("b", { title: status.config.file }, status.config.version), ` since ${when(status.config.loaded)}`,
    reload ? ` · last reload ${when(reload.time)} ` : " · not reloaded yet", reload ? make("b", reload.result) : "");
  $("drain").disabled = status.life === "draining";
  const refused = lately(past.all.refused);
  document.title = (refused ? `(${rate(refused)}/s refused) ` : "") + "tollgate";
}

/** The problems of backends that the sentence on top reports; the status lists the worst first. */
function headlines() {
  const { problems } = now.status;
  const outage = problems.filter((problem) => problem.severity === "bad");
  return (outage.length ? outage : problems).slice(0, 2);
}

/** Refusals that are of no limit: the list of samples, words, and the status. */
const REJECTIONS = [["unauthenticated", "no valid credential (401)", 401], ["forbidden", "not allowed (403)", 403], ["too_large", "body too large (413)", 413]];

/** Those of the last minute, the most first. */
function rejections() {
  const found = REJECTIONS.map(([list, words, status]) => {
    const rate = lately(past.all[list]);
    return { words, now: rate, minute: sum((past.all[list] ?? []).slice(-MINUTE)), client: sampledClient(status, rate ? FRESH : MINUTE) };
  });
  return found.filter((one) => one.minute).sort((a, b) => b.now - a.now || b.minute - a.minute);
}

/** `, all from 192.0.2.7`, by the samples of refusals with this status in the last seconds, if they are of one client. */
function sampledClient(status, seconds) {
  const clients = new Set(refusals.list.filter((one) => one.limit === null && one.status === status && one.time >= now.status.time - seconds).map((one) => one.client));
  return clients.size === 1 ? `, ${refusals.skipped ? "nearly all" : "all"} from ${[...clients][0]}` : "";
}

/** The refusals that are of no limit, or of a limit on wrong credentials, if these are the most: now, else in the last minute. */
function worstRejection(limit, suspect) {
  const ofLimit = limit && { words: limit.failures, now: refusesNow(limit.name), minute: enforced(limit.minute), client: "", suspect };
  const first = rejections()[0];
  if (first && (!limit || first.now > ofLimit.now || first.now === ofLimit.now && first.minute > ofLimit.minute)) return first;
  if (!ofLimit?.words) return null;
  if (suspect) ofLimit.client = `, ${suspect.refused === now.suspects.refused ? "all" : share(suspect.refused, now.suspects.refused)} from ${keyText(suspect)}`;
  return ofLimit;
}

/** The text of a problem, whose first name links to the backends. */
function toBackends(text) {
  const parts = prose(text);
  const name = parts.findIndex((part) => part instanceof Node);
  return name < 0 ? [to("backends-section", text)] : parts.with(name, to("backends-section", parts[name]));
}

let suspected = null; // the limit and key that the sentence and its buttons are about
function drawVerdict() {
  const limit = worst();
  const found = limit && now.suspects?.limit === limit.name && now.suspects.keys[0]?.refused ? now.suspects.keys[0] : null;
  const rejected = worstRejection(limit, found);
  const suspect = rejected ? rejected.suspect ?? null : found;
  const all = sum(["admitted", "delayed", "refused", "failed"].map((name) => lately(past.all[name])));
  const outage = headlines()[0]?.severity === "bad";
  const failed = lately(past.all.failed);
  const refusing = rejected ? (rejected.now && rejected.now * 20 >= all ? "bad" : "warn") : !limit ? "" : refusesNow(limit.name) ? "bad" : "warn";
  const failing = failed ? failed / all >= OUTAGE ? "bad" : "warn" : "";
  const mood = outage || refusing === "bad" || failing === "bad" ? "bad" : headlines().length || failing ? "warn" : refusing || (all ? "" : "idle");
  const p99 = fresh(past.all.p99_ms);
  const parts = rejected?.now ? [strong(rate(rejected.now) + "/s"), " refused: ", to("refusals-section", rejected.words), `${rejected.client}. `]
    : rejected && !outage ? ["No request is refused now. ", `In the last minute ${count(rejected.minute)} refused: `, to("refusals-section", rejected.words), `${rejected.client}. `]
    : refusing === "bad" ? [to("limits-section", limit.name), " refuses ", strong(rate(refusesNow(limit.name)) + "/s"), ` of ${rate(all)}/s requests: over ${limit.policies.join(", ")}, on ${limit.routes.join(", ")}. `]
    : refusing && !outage ? ["No request is refused now. In the last minute ", to("limits-section", limit.name), ` refused ${count(enforced(limit.minute))}. `]
    : !all ? ["No requests come."]
    : [outage ? "" : "No request is refused. ", to("curves-section", rate(all) + "/s"), " requests", ...failed ? [", ", to("refusals-section", rate(failed) + "/s"), " fail"] : [], p99 === null ? "." : `, p99 ${latency(p99)}.`];
  // An outage comes first: it affects all clients of the backend.
  parts.unshift(...headlines().flatMap((problem) => toBackends(problem.text + ". ")));
  if (suspect && rejected && suspect.banned_until && !suspect.ban_in_shadow) parts.push(`It is banned until ${when(suspect.banned_until)}.`);
  if (suspect && !rejected) parts.push(to("keys-section", keyText(suspect)), ` has ${share(suspect.refused, now.suspects.refused)} of its refusals`, suspect.banned_until && !suspect.ban_in_shadow ? `, and is banned until ${when(suspect.banned_until)}.` : ".");
  $("verdict").className = "verdict " + mood;
  refresh($("sentence"), parts);
  // Buttons are replaced only when the key changes: a button that is being pressed or has the focus stays.
  const shown = suspect && [limit.name, suspect.id, isBanned(suspect)].join();
  if (suspected === shown) return;
  suspected = shown;
  $("remedies").replaceChildren(...suspect ? [button("Look", () => look(limit.name, suspect.id), `Look at ${keyText(suspect)}`), banOrLift(make("button"), limit.name, suspect)] : []);
}

function drawConcerns() {
  const { status } = now;
  const items = [];
  const bad = (text) => items.push(make("li.bad", ...prose(text)));
  const warn = (text) => items.push(make("li", ...prose(text)));
  if (status.life === "draining") bad("Draining: this gateway exits when its requests are done.");
  if (status.last_reload?.result === "failure") bad("The last reload failed; the configuration did not change. " + status.last_reload.detail);
  for (const problem of status.problems) if (!headlines().includes(problem)) (problem.severity === "bad" ? bad : warn)(problem.text);
  const headline = worstRejection(worst(), null);
  for (const one of rejections()) if (one.now && one.words !== headline?.words) warn(`${rate(one.now)}/s refused: ${one.words}${one.client}`);
  if (lately(past.all.failed)) bad(`${rate(lately(past.all.failed))}/s requests fail: answered with a 5xx by the backend or with an error by the gateway, or broken off`);
  if (!status.store.up) bad("The shared store is unreachable; on_error decides.");
  if (lately(past.store.evictions)) warn(`Counters are full: ${rate(lately(past.store.evictions))}/s evicted. Raise max_keys.`);
  for (const limit of now.limits) if (limit.mode === "shadow" && limit.minute.refused) items.push(make("li.shadow", `Shadow ${limit.name} would have refused ${count(limit.minute.refused)} from ${plural(limit.minute.refused_keys, "key")} in the last minute`));
  for (const limit of now.limits) if (limit.mode === "enforce" && limit.minute.in_shadow) items.push(make("li.shadow", `Trial of ${limit.name} (${percent(limit.trial ?? 1)}) refused ${count(enforced(limit.minute))}, and would have refused ${count(limit.minute.in_shadow)} more, in the last minute`));
  if (status.bans) warn(`Banned: ${plural(status.bans, "key")}`);
  if (status.shadow_bans) items.push(make("li.shadow", `In shadow, ${plural(status.shadow_bans, "key")} would be banned`));
  $("concerns").replaceChildren(...items);
}

function drawLimits() {
  gist("limits-section", `${count(sum(now.limits.map((limit) => enforced(limit.minute))))} refused in 1 min`);
  write($("limits-note"), now.limits.length ? "" : "The file has no limits.");
  list("limits", inOrder(now.limits), (limit) => limit.name + limit.mode + limit.trial, (limit) => {
    const name = button(limit.name, () => choose(limit.name), `Show the keys of ${limit.name}`);
    name.className = "link";
    return make("tr", make("th", name, modeTag(limit), make("span.sub")),
      make("td.n.hot"), number(), number(), number(), number());
  }, (row, limit) => {
    const shown = limit.name === shownLimit();
    row.className = `${limit.mode} ${limit.minute.refused ? "hot" : ""} ${shown ? "chosen" : ""}`;
    row.querySelector("button").ariaPressed = String(shown);
    write(row.querySelector(".sub"), `${limit.policies.join(", ")}${limit.failures ? ` of ${limit.failures}` : ""} for each ${limit.key.join(" and ")}` + limit.tiers.map((tier) => ` · ${tier.name}: ${tier.policies.join(", ")}`).join("") + unitRates(limit) + (limit.in_flight ? ` · ${count(limit.in_flight.held)} in flight${limit.in_flight.found_max ? ` of ${count(limit.in_flight.found_max)} found` : ""}, ${count(limit.in_flight.waiting)} waiting` : "") + (limit.ban ? ` · ${limit.ban}` : "") + (limit.bans ? ` · ${limit.bans} banned` : "") + (limit.shadow_bans ? ` · ${limit.shadow_bans} would be banned` : "") + (limit.max_keys ? ` · ${count(limit.keys)} of at most ${count(limit.max_keys)} keys` : "") + (limit.mode === "enforce" && limit.minute.in_shadow ? ` · ${count(limit.minute.in_shadow)} of these refusals only counted` : ""));
    const { minute, hour } = limit;
    cells(row, [null, ...[minute.refused, minute.refused_keys, minute.admitted + minute.delayed, hour.refused, hour.refused_keys].map(count)]);
  });
}

/** The units/s that settled requests cost, and how many these are, of a limit that settles costs after the response. */
function unitRates({ name, settles }) {
  const { units, settled } = past.limits[name] ?? {};
  return settles && units ? ` · ${rate(lately(units))} units/s, ${rate(lately(settled))} requests/s settled` : "";
}

const settles = (name) => now.limits.find((limit) => limit.name === name)?.settles ?? false;

/** Places of a concurrency limit are given back by their requests alone. */
const resettable = (name) => now.limits.find((limit) => limit.name === name)?.algorithm !== "concurrency";

/** A value such as `…a1b2 #k7Qd`, as the gateway masks keys. */
const isMasked = ({ key }) => (key ?? []).some((part) => /^….* #\S{4,}$/.test(part));
const isBanned = ({ banned_until, ban_in_shadow }) => !!banned_until && !ban_in_shadow;

/** The button that bans a key, or lifts its ban. A ban in shadow refuses nothing: there is nothing to lift. */
function banOrLift(press, limit, one) {
  const text = keyText(one);
  write(press, isBanned(one) ? "Lift…" : "Ban…");
  press.ariaLabel = isBanned(one) ? `Lift the ban of ${text}` : `Ban ${text}`;
  press.onclick = () => isBanned(one) ? lift(limit, text, changeKey(limit, one.id)) : look(limit, one.id, "ban");
  return press;
}

function drawKeys() {
  const { keys } = now;
  $("keys-by").hidden = !keys || !settles(keys.limit);
  $("keys").parentElement.hidden = !keys;
  if (!keys) return writeProse($("keys-note"), "Keys are of a limit.");
  write($("keys-title"), `Keys of ${keys.limit}` + (keys.mode === "shadow" ? " (shadow)" : ""));
  write($("keys-refused"), keys.mode === "shadow" ? "Would be refused" : "Refused");
  list("keys", keys.keys, (one) => keys.limit + one.id, (one) => {
    const { limit } = keys;
    const text = keyText(one);
    return make("tr", make("th", make("strong", { title: isMasked(one) ? `Masked: \`reveal = true\` of the limit ${limit} shows the whole value.` : "" }, text), make("span.sub"), make("span.tag")),
      make("td.n.hot"), number(), number(),
      make("td.doing", button("Look", () => look(limit, one.id), `Look at ${text}`), ...resettable(limit) ? [button("Reset…", () => reset(limit, text, changeKey(limit, one.id)), `Reset ${text}`)] : [], make("button.ban")));
  }, (row, one) => {
    row.className = keys.mode + (one.refused ? " hot" : "");
    write(row.querySelector(".sub"), [one.tier && `tier ${one.tier}`, one.override && `override ${one.override.rate.join(", ")}`, typeof one.units === "number" && plural(one.units, "unit")].filter(Boolean).join(" · "));
    const tag = row.querySelector(".tag");
    tag.className = one.ban_in_shadow ? "tag shadow" : "tag banned";
    banOrLift(row.querySelector(".ban"), keys.limit, one);
    write(tag, one.banned_until ? (one.ban_in_shadow ? "shadow: would be banned until " : "banned until ") + when(one.banned_until) : "");
    cells(row, [null, count(one.refused), count(one.admitted), one.refused ? share(one.refused, keys.refused) : ""]);
  });
  $("shares").parentElement.hidden = !keys.shares.length;
  list("shares", keys.shares, (one) => keys.limit + one.key?.join("\n"), (one) => make("tr", make("th", strong(one.key?.join(" · ") || "others")), make("td.n.hot"), number(), number(), number()), (row, one) => {
    row.className = one.refused ? "hot" : "";
    cells(row, [null, count(one.refused), count(one.admitted), share(one.demand, 1), share(one.share, 1)]);
  });
  writeProse($("keys-note"), !keys.keys.length ? "No requests yet." : `In the last ${span(keys.span)}; ` + (keys.error ? `each count may be too low by up to ${count(keys.error)}.` : "counts are exact.") + (keys.keys.some(isMasked) ? ` Key values are masked: \`reveal = true\` in [limits.${keys.limit}] shows them (docs/limits.md).` : ""));
}

function keepRefusals(answer) {
  const old = answer.started === refusals.started ? refusals.list : [];
  refusals = { ...answer, list: old.concat(answer.refusals.filter((one) => !old.length || one.seq > refusals.seq)).slice(-200) };
}

/** Where a failed request went: the server of the sample; without it, one that the counts of the servers leave, or two; else the upstream. */
function servedBy({ status, limit, route, server, reason, time }) {
  if (server) return "to " + server.slice(server.indexOf("/") + 1);
  const upstream = limit === null && status >= 500 ? now.routes.list.find((one) => one.name === route)?.upstream : null;
  if (!upstream) return "";
  const servers = past.upstreams[upstream]?.servers ?? [];
  const failing = servers.filter((one) => one.minute?.["5xx"]);
  const isAnswer = reason === "answer of the backend" && time > now.status.time - MINUTE;
  const possible = isAnswer && failing.length ? failing : servers;
  return "to " + (possible.length && possible.length <= 2 ? possible.map((one) => one.server).join(" or ") : upstream);
}

/** One row for equal refusals, so that a flood from one client does not hide the others. */
function drawRefusals() {
  const alike = new Map();
  for (const one of refusals.list) {
    const name = [one.client, one.id, one.limit, one.route, one.status, one.server, one.reason].join("\n");
    alike.set(name, { ...one, name, times: (alike.get(name)?.times ?? 0) + 1 });
  }
  const rows = [...alike.values()].sort((a, b) => Math.floor(b.time / 10) - Math.floor(a.time / 10) || b.times - a.times).slice(0, MAX_REFUSALS);
  list("refusals", rows, (one) => one.name, (one) => {
    const client = one.id ? button(one.client, () => look(one.limit, one.id), `Look at ${one.client}`) : strong(one.client);
    if (one.id) client.className = "link";
    return make("tr", make("td"), make("td", client, make("span.sub")), make("td.wide", make("span"), make("span.sub")), number(), make("td.wide"));
  }, (row, one) => {
    cells(row, [clock(one.time), null, null, String(one.status), null]);
    const [request, server] = row.cells[2].children;
    write(request, one.method ? `${one.method} ${one.host ?? ""}${one.path ?? ""}` : "");
    write(server, servedBy(one));
    writeProse(row.cells[4], (one.limit ? `${one.limit}: ` : "") + one.reason);
    row.className = one.limit === null && one.status >= 500 ? "failed" : "";
    const key = one.key && keyText(one) !== one.client ? `${keyText(one)} · ` : "";
    write(row.querySelector(".sub"), `${key}${one.times}× on ${one.route ?? "no route"}`);
  });
  gist("refusals-section", rows.length ? `last ${clock(last(refusals.list).time)}` : "none");
  write($("refusals-note"), refusals.list.length ? `The last ${refusals.list.length} since ${clock(refusals.list[0].time)}` + (refusals.skipped ? `; ${count(refusals.skipped)} more of this second are not listed.` : ".") : "No request was refused.");
}

function drawBans() {
  const { bans, total } = now.bans;
  list("bans", bans, (ban) => ban.limit + ban.id + ban.in_shadow, (ban) => {
    const text = keyText(ban);
    const name = button(text, () => look(ban.limit, ban.id), `Look at ${text}, ${ban.in_shadow ? "in shadow" : "banned"} under ${ban.limit}`);
    // A ban in shadow refuses nothing: there is nothing to lift.
    return make("tr", make("th", name, ban.in_shadow ? shadowTag("This ban is only counted: it refuses no request.") : ""), make("td"), make("td"), make("td"),
      make("td.doing", ...ban.in_shadow ? [] : [button("Lift…", () => lift(ban.limit, text, changeKey(ban.limit, ban.id)), `Lift the ban of ${text} under ${ban.limit}`)]));
  }, (row, ban) => {
    row.querySelector("button").className = "link";
    cells(row, [null, ban.limit, ban.cause, `${when(ban.banned_until)}, in ${span(ban.banned_until - now.status.time)}`]);
  });
  gist("bans-section", total ? count(total) : "none");
  write($("bans-note"), !total ? "No key is banned." : total > bans.length ? `${count(total)} keys are banned; these ${count(bans.length)} bans end first.` : "");
}

/** The conditions of a route, as in the config file. */
function conditions({ hosts, path, methods, headers, query, cookies, body, clients, countries, listeners, not }) {
  const networks = clients.length > 3 ? [...clients.slice(0, 3), `${count(clients.length - 3)} more`] : clients;
  return [methods.join(", "), hosts.join(", "), path, ...headers.map((name) => `with ${name}`), ...query.map((name) => `with ?${name}`), ...cookies.map((name) => `with cookie ${name}`), ...body.map((pointer) => `with ${pointer} in the body`), networks.length ? `from ${networks.join(", ")}` : "", countries.length ? `in ${countries.join(", ")}` : "", listeners.length ? `at ${listeners.join(", ")}` : "",
    not.length ? `unless ${not.join(" or ")}` : ""].filter(Boolean).join(" · ");
}

/** What a route of the explanation does: it forwards, redirects or answers. A location may have backticks of the client. */
function action({ upstream, rewritten_by, forwarded, answer }) {
  if (!answer) return [...prose(` to ${upstream}`), ...rewritten_by.length ? [" as ", make("code", forwarded), ` by ${rewritten_by.join(" and ")}`] : [], ", because"];
  if (answer.location !== null) return [` redirects with ${answer.status} to `, make("code", answer.location), ", because"];
  return [` answers ${answer.status} ${answer.content_type === null ? "without a body" : `with ${answer.content_type}`}, because`];
}

function drawRoutes() {
  const none = past.routes.none && !now.routes.list.some((route) => route.name === "none") ? [{ name: "none", limits: null }] : [];
  list("routes", [...now.routes.list, ...none], (route) => now.routes.config + route.name, (route) => {
    const limits = (route.limits ?? []).map(({ name, mode, cost, cost_rule }) => make("span.sub", name, cost_rule ? ` (cost ${cost_rule})` : cost === 1 ? "" : ` (cost ${count(cost)})`, modeTag({ mode, trial: now.limits.find((limit) => limit.name === name)?.trial ?? null })));
    return make("tr", make("th", route.name, route.upstream ? make("span.sub", `to ${route.upstream}`) : route.answer ? make("span.sub", `${route.answer < 400 && route.answer >= 300 ? "redirects" : "answers"} with ${route.answer}`) : ""), make("td.wide", route.limits ? conditions(route) : "requests that no route matches"),
      make("td.wide", ...limits.length ? limits : ["none"]), number(), number(), number(), number());
  }, (row, { name }) => {
    const of = past.routes[name] ?? {};
    const minute = (list) => sum((of[list] ?? []).slice(-MINUTE));
    const [refused, failed] = [minute("refused"), minute("failed")];
    const kinds = REJECTIONS.map(([list, , status]) => [status, minute(list)]).filter(([, number]) => number).map(([status, number]) => `${status}: ${count(number)}`);
    row.cells[4].className = refused ? "n lost" : "n";
    row.cells[5].className = failed ? "n lost" : "n";
    cells(row, [null, null, null, count(minute("admitted") + minute("delayed") + refused + failed), count(refused) + (kinds.length ? ` (${kinds.join(", ")})` : ""), count(failed), rate(last((of.p99_ms ?? []).filter((ms) => ms !== null)))]);
  });
  gist("routes-section", count(now.routes.list.length));
  write($("routes-note"), "Latency is without delays by limits.");
}

/** Takes a server out of service, or back. */
function drainServer({ upstream, server, drained }) {
  const path = `upstreams/${encodeURIComponent(upstream)}/servers/${encodeURIComponent(server)}/drain`;
  if (drained) return act(path, "DELETE", null, () => `${server} gets requests again.`);
  sure("Drain this server?", [strong(server), " of ", strong(upstream), " gets no new requests until it is undrained. Requests in flight end there."], "Drain",
    () => act(path, "POST", {}, () => `${server} is drained.`));
}

const isTroubled = ({ up, drained, minute }) => !up || drained || minute?.["5xx"] > 0;

/** Each upstream, and below it its servers. Of many servers, those that are fine are shown by "Show all". */
function drawBackends() {
  const groups = Object.entries(past.upstreams).map(([upstream, of]) => [{ upstream, of }, ...(of.servers ?? []).map((server) => ({ upstream, ...server }))]);
  const all = groups.flat();
  const few = all.length <= SHOWN_SERVERS ? all : all.filter((one) => one.of || isTroubled(one));
  listFew("backends", all, few, ({ upstream, server = "" }) => `${upstream} ${server}`,
    (one) => make("tr", make("th", { scope: one.of ? "rowgroup" : "row" }, one.of ? one.upstream : one.server), make("td.hot.wide"), ...Array.from({ length: CLASSES.length + 3 }, number),
      make("td.doing", ...one.of ? [] : [button("Drain", null)])),
    (row, one) => one.of ? drawUpstream(row, one.of) : drawServer(row, one));
  const servers = all.filter((one) => !one.of);
  const down = servers.filter((one) => !one.up).length;
  gist("backends-section", down ? `${down} of ${count(servers.length)} down` : `all ${count(servers.length)} up`);
  write($("backends-note"), all.length ? "Requests of the last minute." : "The file has no upstreams.");
  drawStore();
}

/** The sums of the servers of an upstream. */
function drawUpstream(row, of) {
  const { all, down, which } = downServers(of);
  const unanswered = minuteOf(of.failed);
  row.className = down ? "group hot" : "group";
  row.cells[5].className = minuteOf(of.classes?.["5xx"]) ? "n lost" : "n";
  row.title = which;
  refresh(row.cells[1], [down ? `${all - down} of ${all} up` : all ? `all ${all} up` : "built in", make("span.sub.lost", unanswered ? `${count(unanswered)} unanswered` : "")]);
  cells(row, [null, null, ...CLASSES.map((name) => count(minuteOf(of.classes?.[name]))), count(minuteOf(of.retries)), count(sum((of.servers ?? []).map((server) => server.in_flight))), rate(last(of.p99_ms))]);
}

function drawServer(row, one) {
  row.className = one.up ? "server" : "server hot";
  row.cells[5].className = one.minute?.["5xx"] ? "n lost" : "n";
  const state = [one.drained ? "drained" : "", one.up ? (one.drained ? "" : "up") : one.why + (one.reason ? ` (${one.reason})` : "")].filter(Boolean).join(", ");
  const act = row.querySelector("button");
  write(act, one.drained ? "Undrain" : "Drain");
  act.ariaLabel = `${act.textContent} ${one.server}`;
  act.onclick = () => drainServer(one);
  cells(row, [null, state, ...CLASSES.map((name) => count(one.minute?.[name])), count(one.retries), count(one.in_flight), rate(one.p99_ms)]);
}

function drawStore() {
  const { store } = now.status;
  const newest = (list) => rate(last(past.store[list]));
  write($("store-note"), store.max_keys ? `At most ${count(store.max_keys)} counters, in memory.`
    : `${store.backend} ${store.up ? "responds" : "is unreachable"}; decisions take p50 ${newest("p50_ms")} ms, p99 ${newest("p99_ms")} ms; ${newest("errors")}/s are made without it.`);
}

/** The gateways that share the store. Without a shared store, the section is hidden. */
function drawFleet() {
  const { time, shared, gateways } = now.fleet;
  gist("fleet-section", plural(gateways.length, "gateway"));
  $("fleet-section").hidden = !shared || !gateways.length;
  list("fleet", gateways, ({ id }) => id, ({ id }) => make("tr", make("th", { title: id }), make("td"), make("td"), make("td"), ...Array.from({ length: 4 }, number)), (row, one) => {
    row.className = one.gone ? "hot" : "";
    row.cells[0].title = one.id;
    cells(row, [one.address, one.gone ? "gone" : one.this ? "live, this one" : "live", one.file_hash, one.version, span(time - one.since), span(time - one.last_seen) + " ago", count(one.clock_ahead_ms), count(one.leased_units)]);
  });
}

function drawChoices() {
  offer($("route"), [["", "all"], ...Object.keys(past.routes).sort().map((name) => [name, name])]);
}

/** Gives a list its options, as pairs of value and text. What is chosen stays chosen, or else is the first option. */
function offer(select, options, value = select.value) {
  const asText = (pairs) => JSON.stringify(pairs);
  if (asText(options) !== asText([...select.options].map((option) => [option.value, option.text]))) {
    select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  }
  const wanted = options.some(([offered]) => offered === value) ? value : options[0]?.[0] ?? "";
  if (select.value !== wanted) select.value = wanted;
}

// ---- usage ----

/** The report that is shown, its limit and window as text, and when it was asked for. */
let usage = { of: null, report: null, fault: "", asked: -USAGE_PERIOD, pending: false };
const usageFields = () => $("usage-form").elements;
/** The API's path of the usage of this limit. */
const usagePath = (limit, parameters) => `limits/${encodeURIComponent(limit)}/usage?` + new URLSearchParams(parameters);
/** `24 Nov 2026, 14:00` */
const dateTime = (time, year) => new Date(time).toLocaleString("en-GB", { day: "numeric", month: "short", year, hour: "2-digit", minute: "2-digit" });
const withYear = (time) => dateTime(time, "numeric");
/** A name with its invisible characters as escapes: they could make it look like another name. */
const visible = (name) => name.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));

/** The report of the chosen limit and window: every 10 seconds while it is in view, and at once if `anew`. The rounds do not wait for it. */
async function askUsage(anew = false) {
  const { limit: { value: limit }, window: { value: window } } = usageFields();
  const [of, time] = [JSON.stringify([limit, window]), performance.now()];
  const isDue = !usage.pending && time - usage.asked >= USAGE_PERIOD && $("usage-section").getBoundingClientRect().top < innerHeight;
  if (!limit || of === usage.of && !anew && !isDue) return;
  usage = { ...usage, of, ...of === usage.of ? {} : { report: null, fault: "" }, asked: time, pending: true };
  const [report, fault] = await send(usagePath(limit, { window: window || "current", top: MAX_ROWS }), "GET", null, LONG_TIMEOUT)
    .then((answer) => answer.json()).then((report) => [report, null], (fault) => [null, fault]);
  if (usage.asked !== time) return; // something else is chosen meanwhile
  if (fault?.status === 400 && window !== "current") return chooseUsage("current"); // the window is no longer kept
  usage = { ...usage, report: report ?? usage.report, fault: fault?.message ?? "", pending: false };
  drawUsage();
}

function chooseUsage(window) {
  if (window) usageFields().window.value = window;
  askUsage(true);
}

/** The limits that keep usage, and the report of one. Without such a limit, the section is hidden. */
function drawUsage() {
  const limits = now.limits.filter((limit) => limit.usage);
  $("usage-section").hidden = $("usage-open").hidden = !limits.length;
  if (!limits.length) return;
  const fields = usageFields();
  offer(fields.limit, limits.map(({ name }) => [name, name]));
  if (!fields.window.options.length) offer(fields.window, [["current", "current"]]);
  askUsage();
  const { report, fault } = usage;
  $("usage-form").querySelector("button").disabled = !report;
  list("usage", report?.consumers ?? [], (one) => JSON.stringify([usage.of, one.consumer, one.other]), consumerRow, (row, one) => drawConsumer(row, one, report));
  if (!report) {
    for (const id of ["usage-total", "usage-gap"]) write($(id), "");
    return writeProse($("usage-note"), fault || "Loading …");
  }
  const { window, windows, total } = report;
  offer(fields.window, windows.map((begin, index) => [index ? begin : "current", `${["current, ", "previous, "][index] ?? ""}from ${withYear(begin)}`]));
  write($("usage-total"), `${plural(total.units, "unit")}, ${plural(total.requests, "request")} from ${withYear(window.begin)} to ${withYear(window.end)}, under ${report.policy}.` + (Date.parse(report.since) > Date.parse(window.begin) ? ` Recorded since ${withYear(report.since)}.` : ""));
  write($("usage-gap"), report.incomplete_since ? `Incomplete since ${withYear(report.incomplete_since)}: units may be missing.` : "");
  writeProse($("usage-note"), fault ? `The report is not current: ${fault}` : (total.requests || report.consumers.length ? "" : "No usage in this window. ") + (report.consumers.length < MAX_ROWS ? "" : `These are the ${MAX_ROWS} consumers with the most units; the CSV has all. `) +
    (isOver(report) ? "Budgets are those of now. " : "") + "Times are in the time zone of this browser.");
}

/** Rounded, but 100% is the whole budget and not less or more. */
const budgetPercent = (share) => rate(share < 1 ? Math.min(99, 100 * Math.max(0, share)) : share > 1 ? Math.max(101, 100 * share) : 100) + "%";

/** Whether the report is of a window before the present one. */
const isOver = ({ window }) => Date.parse(window.end) / 1000 <= now.status.time;

function consumerRow({ consumer, other }) {
  const name = consumer !== null ? make("bdi", visible(consumer)) : make("em", other ? "other consumers" : "no consumer");
  return make("tr", make("th", name, make("span.sub")), number(), number(),
    make("td.wide", make("span.bar", { ariaHidden: "true" }, make("i"), make("i")), make("span")), make("td.wide"));
}

function drawConsumer(row, one, report) {
  const { share, quota, tier } = one;
  write(row.querySelector(".sub"), tier !== null ? `tier ${tier}` : one.consumer !== null ? "" : one.other ? "without rows of their own" : "requests without a consumer");
  const [bar, text] = row.cells[3].children;
  const [within, beyond] = bar.children;
  const whole = Math.max(1, share ?? 0);
  bar.hidden = share === null;
  within.style.width = `${100 * Math.max(0, share ?? 0) / whole}%`;
  beyond.style.width = `${100 * (whole - 1) / whole}%`;
  text.className = share > 1 ? "over" : "";
  write(text, share === null ? (quota === null ? "–" : `of ${count(quota)}`) : `${budgetPercent(share)} of ${count(quota)}`);
  cells(row, [null, count(one.units), count(one.requests), null, isOver(report) || share === null ? "–" : share >= 1 ? "used up" : one.exhausted_at ? `used up on ${dateTime(one.exhausted_at)}` : "lasts"]);
}

/** Fetches the CSV, since a link cannot send the token, and saves it. */
async function saveUsage() {
  if (!usage.report) return;
  const { limit, window: { begin } } = usage.report;
  try {
    const answer = await send(usagePath(limit, { window: begin, format: "csv", top: MAX_CONSUMERS }), "GET", null, LONG_TIMEOUT);
    const href = URL.createObjectURL(await answer.blob());
    make("a", { href, download: `usage-${limit}-${begin}.csv`.replace(/[^\w.-]/g, "_") }).click();
    setTimeout(() => URL.revokeObjectURL(href), LONG_TIMEOUT);
  } catch (fault) {
    if (fault.status === 401) askToken();
    else say(fault.message);
  }
}

// ---- rounds ----

let answeredAt = null; // time of the gateway's last response
let timer = 0;
let busy = false;

async function round() {
  if (busy || document.hidden || $("ask").open) return;
  busy = true;
  const began = performance.now();
  try {
    const since = (seq) => seq === null ? "" : "?since=" + seq;
    const [status, samples, limits, news] = await Promise.all([ask("status"), ask("samples" + since(past.seq)), ask("limits"), ask("refusals" + since(refusals.seq))]);
    remember(samples);
    keepRefusals(news);
    now = { ...now, status, limits: limits.limits };
    await Promise.all([askKeys(), askBans(), askRoutes(), askFleet()]);
    answeredAt = Date.now() / 1000;
    showContact(null);
    for (const draw of [drawFacts, drawVerdict, drawConcerns, drawLimits, drawKeys, drawRefusals, drawBans, drawBackends, drawFleet, drawRoutes, drawUsage, drawChoices, drawCharts]) draw();
  } catch (fault) {
    showContact(fault);
  }
  busy = false;
  soon(Math.max(100, PERIOD - (performance.now() - began)));
}

async function askKeys() {
  const [shown, suspected] = [shownLimit(), worst()?.name ?? null];
  const by = settles(shown) ? $("keys-by").querySelector("select").value : "refused";
  const listed = (limit, by) => limit === null ? null : ask(limitPath(limit) + "?top=20&by=" + by);
  const one = suspected === shown && by === "refused"; // the suspects are the keys with the most refusals
  const [keys, others] = await Promise.all([listed(shown, by), one ? null : listed(suspected, "refused")]);
  Object.assign(now, { keys, suspects: one ? keys : others });
}

async function askBans() {
  now.bans = now.status.bans + now.status.shadow_bans ? await ask("bans?top=100") : { total: 0, bans: [] };
}

const NO_FLEET = { shared: false, gateways: [] };

/** The status tells of a store that is unreachable: without it, no gateway is listed. */
async function askFleet() {
  now.fleet = now.status.store.backend === "memory" ? NO_FLEET : await ask("fleet").catch((fault) => {
    if (fault.status !== 503) throw fault;
    return NO_FLEET;
  });
}

/** Routes change with the configuration only. */
async function askRoutes() {
  const config = now.status.config.version + now.status.config.loaded;
  if (now.routes.config !== config) now.routes = { config, list: (await ask("routes")).routes };
}

function soon(wait = 50) {
  clearTimeout(timer);
  timer = setTimeout(round, wait);
}

/** Shows why the page has no current data, if a round failed. A fault without a status is an error of this page. */
function showContact(fault) {
  if (fault === null) document.body.classList.remove("starting");
  document.body.classList.toggle("stale", fault !== null);
  $("contact").hidden = fault === null || fault.status === 401;
  if (fault === null) return;
  if (fault.status === undefined) console.error(fault);
  if (fault.status === 401) return askToken();
  const source = fault.status === undefined ? "Error of this page: " : fault.status ? `The gateway answers ${fault.status}: ` : "";
  writeProse($("contact"), source + fault.message + (answeredAt ? ` This page shows the state at ${clock(answeredAt)}.` : ""));
}

/** Shows only the dialog for the token, until the gateway has accepted a token. */
function askToken() {
  if ($("ask").open) return;
  write($("ask-fault"), sessionStorage.getItem("tollgate-token") ? WRONG_TOKEN : "");
  document.body.classList.add("locked");
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  $("ask").showModal();
}

const WRONG_TOKEN = "The gateway does not accept this token.";

/** The dialog stays until the token is accepted, and shows the error. */
async function tryToken({ token, submit }) {
  sessionStorage.setItem("tollgate-token", token.value.trim());
  write($("ask-fault"), "");
  submit.disabled = true;
  try {
    await ask("status");
  } catch (fault) {
    sessionStorage.removeItem("tollgate-token");
    writeProse($("ask-fault"), fault.status === 401 ? WRONG_TOKEN : fault.message);
    return token.select();
  } finally {
    submit.disabled = false;
  }
  token.value = "";
  document.body.classList.remove("locked");
  $("ask").close();
  soon();
}

// ---- buttons and forms ----

function choose(limit) {
  chosen = limit;
  soon();
}

let looked = null; // { limit, key, one }

let agreed = null; // the action to run after confirmation

/** Asks for confirmation of a change; `then` runs if it is given. `parts` are texts and nodes. */
function sure(title, parts, verb, then) {
  if ($("sure").open) return;
  write($("sure-title"), title);
  $("sure-text").replaceChildren(...parts);
  write($("sure-yes"), verb);
  agreed = then;
  $("sure").showModal();
  $("sure-no").focus();
}

/** `change` sends the change; its last argument makes the message of success. It is `act`, or `change` below, which also updates the dialog of the key. */
const reset = (limit, text, change) => sure("Reset this counter?", [strong(text), " gets its full allowance of ", strong(limit), " back."], "Reset",
  () => change("", "DELETE", null, () => `Reset: ${text} has its full allowance of ${limit} again.`));

const lift = (limit, text, change) => sure("Lift this ban?", [strong(text), " will be refused only when it exceeds ", strong(limit), "."], "Lift",
  async () => {
    const lifted = await change("/ban", "DELETE", null, () => `${text} is no longer banned.`);
    if (lifted && $("bans").contains(document.activeElement)) $("bans-section").focus(); // the row is removed
  });

const changeKey = (limit, key) => (path, ...how) => act(keyPath(limit, key) + path, ...how);

async function look(limit, key, then) {
  const one = await act(keyPath(limit, key), "GET", null, () => "");
  if (!one) return;
  showLook({ limit, key, one });
  if (!$("look").open) $("look").showModal();
  if (then === "ban") $("ban-form").elements.for.focus();
}

/** The units left of a policy, or the debt of a key whose settled costs exceed its allowance. */
const left = ({ quota, used, remaining }) => used > quota ? `${count(remaining)} (${count(used - quota)} in debt)` : count(remaining);

function showLook(seen) {
  looked = seen;
  const { limit, one } = seen;
  write($("look-title"), `${keyText(one)} under ${limit}` + (one.tier ? ` (tier ${one.tier})` : ""));
  const override = one.override;
  write($("look-verdict"), `Next request: ${one.verdict}` + (one.mode === "shadow" ? " (shadow: not enforced)" : "") + (one.banned_until ? `${one.ban_in_shadow ? "; in shadow, it would be banned" : ","} until ${when(one.banned_until)} (${one.ban_cause}).` : ".") +
    (override ? ` Override: ${override.rate.join(", ")}${override.burst ? `, burst ${override.burst}` : ""}${override.until ? ` until ${when(override.until)}` : ""}.` : ""));
  $("look-policies").tBodies[0].replaceChildren(...one.policies.map((policy) => label(make("tr", make("th", policy.policy),
    ...[left(policy), count(policy.quota), milliseconds(policy.next_ms), milliseconds(policy.full_ms)].map((text) => make("td.n", text))), "look-policies")));
  write($("look-counts"), one.requests === null ? "No counts: other keys of this limit send more requests." : `${plural(one.requests, "request")} lately: ${count(one.admitted)} admitted, ${count(one.refused)} refused${typeof one.units === "number" ? `; ${plural(one.units, "unit")} settled` : ""}.`);
  $("unban").hidden = !one.banned_until || one.ban_in_shadow;
  $("grant-form").hidden = $("look-reset").hidden = one.algorithm === "concurrency"; // a place is free when its request ends
}

/** Changes the key in the dialog, and shows its new state. */
async function change(path, method, body, done) {
  const { limit, key } = looked;
  const one = await act(keyPath(limit, key) + path, method, body, done);
  if (one && looked?.key === key) showLook({ limit, key, one });
  return one;
}

function submit(id, act) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    act($(id).elements);
  });
}

submit("ban-form", (fields) => {
  const { value, selectedOptions } = fields.for;
  sure("Ban this key?", ["All requests of ", strong(keyText(looked.one)), " are refused for ", strong(selectedOptions[0].text), " on every route with ", strong(looked.limit), "."], "Ban",
    () => change("/ban", "POST", { for: value }, (one) => `Banned: ${keyText(one)} until ${when(one.banned_until)}.`));
});
submit("grant-form", (fields) => change("/grant", "POST", { units: Number(fields.units.value) }, (one) => `Gave ${count(one.granted)} back to ${keyText(one)}.`));
submit("key-form", (fields) => shownLimit() && look(shownLimit(), fields.key.value));
submit("usage-form", saveUsage);
submit("token-form", (fields) => tryToken({ token: fields.token, submit: $("token-form").querySelector("button") }));
submit("explain-form", async (fields) => {
  const headers = Object.fromEntries([...fields.headers.value.matchAll(/^([^:\n]+):(.*)$/gm)].map(([, name, value]) => [name.trim(), value.trim()]));
  const request = { method: fields.method.value, url: fields.url.value, headers };
  if (fields.ip.value) request.ip = fields.ip.value;
  const explanation = await act("explain", "POST", request, () => "");
  if (explanation) showExplanation(explanation);
});

function showExplanation(explanation) {
  const wait = explanation.limit ? ` ${explanation.limit} decides` + (explanation.until ? `, until ${when(explanation.until)} (${milliseconds(explanation.wait_ms)}).` : ".") : "";
  const points = (items) => make("ul", ...items.map((item) => make("li", ...prose(item))));
  const limits = explanation.limits.map((limit) => `${limit.name} (${limit.mode}${limit.tier ? `, tier ${limit.tier}` : ""}${limit.overridden ? ", override" : ""}): ${limit.standing}` + (limit.detail ? ` (${limit.detail})` : "") + (limit.verdict ? `, ${limit.verdict}; cost ${count(limit.cost)}` : "") + (limit.settled_by ? ` now, settled by ${limit.settled_by}` : limit.measured ? ` (${limit.measured})` : "") +
    limit.policies.map((policy) => `; ${policy.policy}: ${left(policy)} of ${count(policy.quota)} left`).join(""));
  $("explanation").replaceChildren(
    make("p", strong(explanation.verdict.replace("_", " ")), (explanation.status ? `, answer ${explanation.status}.` : ".") + wait),
    make("p", `${explanation.request} from ${explanation.client}: ${explanation.identified}.`),
    explanation.route ? make("p", "Route ", strong(explanation.route.name), ...action(explanation.route)) : "", points(explanation.route?.conditions.map((pair) => pair.join(": ")) ?? []),
    points((explanation.descriptors ?? []).map((one) => `${one.entries}: ${one.standing}, ${plural(one.hits, "hit")}, by ${one.rule ?? "no rule"}`)),
    make("p", "Limits"), points(limits), make("p", "Other routes"), points(explanation.others.map((pair) => pair.join(": "))));
}

/** The bans that a reload has ended, since it changed the mode of their limit. */
const endedBans = (ended) => ended.map(({ limit, bans, in_shadow }) => ` ${plural(bans, "ban")} of ${limit}${in_shadow ? " in shadow" : ""} ended: ${in_shadow ? "it is enforced now" : "it is in shadow now"}.`).join("");

const press = (id, then) => $(id).addEventListener("click", then);
press("unban", () => lift(looked.limit, keyText(looked.one), change));
press("look-reset", () => reset(looked.limit, keyText(looked.one), change));
press("explain-open", () => $("explain").showModal());
press("reload", () => sure("Reload the file?", [strong(now.status.config.file), " is read again. If it has a fault, the current configuration stays in force."], "Reload",
  () => act("reload", "POST", {}, (done) => (done.changed ? `Reloaded: ${done.version}.` : "Reloaded: nothing has changed.") + endedBans(done.ended_bans) + (done.warnings.length ? " Warnings: " + done.warnings.join("; ") : ""))));
press("drain", () => sure("Stop this gateway?", ["It accepts no new connections, finishes the requests in flight, and exits. This cannot be undone here: the page ends with the gateway. ", make("code", "systemctl start tollgate"), " starts it again; systemd alone does not. Kubernetes, and Docker with ", make("code", "--restart always"), ", start it at once. Counters in memory begin anew."], "Stop",
  () => act("drain", "POST", {}, () => "Stopping: the requests in flight are finished.")));
// The menu closes when something else is pressed, and by Escape. It stays open behind its question, which gives the focus back.
addEventListener("click", (event) => event.target.closest("#more, dialog") || ($("more").open = false));
$("more").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !$("more").open) return;
  $("more").open = false;
  $("more").firstElementChild.focus();
});
$("more").addEventListener("focusout", ({ relatedTarget }) => relatedTarget && !relatedTarget.closest("#more, dialog") && ($("more").open = false));
press("sure-yes", () => {
  $("sure").close();
  agreed();
});
press("sure-no", () => $("sure").close());
for (const close of document.querySelectorAll("[data-close]")) close.addEventListener("click", () => close.closest("dialog").close());
$("ask").addEventListener("cancel", (event) => event.preventDefault());
// A second Escape closes a dialog even if its `cancel` event is prevented.
$("ask").addEventListener("close", () => document.body.classList.contains("locked") && $("ask").showModal());
$("route").addEventListener("change", drawCharts);
$("keys-by").addEventListener("change", () => soon());
$("usage-form").addEventListener("change", (event) => chooseUsage(event.target.name === "limit" ? "current" : null));
press("usage-open", () => {
  setOpen($("usage-section"), true);
  $("usage-section").scrollIntoView();
  $("usage-section").focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => soon());

const charts = { requests: new Chart("requests", "Requests/s", "No requests.", 110) };
for (const [id, title, nothing] of [
  ["limits", "Refused/s by limit", "No refusals."], ["places", "Requests in flight, and the most that was found", ""], ["units", "Units/s of settled costs, and requests/s", ""],
  ["latency", "Latency without delays by limits, ms", "No request was admitted."], ["delay", "Delay by limits, ms", ""], ["upstreams", "Backends, p99 ms", "No answers."], ["store", "Store", "No counters."],
]) charts[id] = new Chart(id, title, nothing);
foldSections();
narrow.addEventListener("change", foldSections);
round();
