// Elements, numbers, tables and charts of the report. page.js, which follows, makes the sections of them.
// Keys, paths and names come from clients: they are always inserted as text, never as markup.
"use strict";

const SHOWN_ROWS = 12, MAX_ROWS = 1000; // rows of a table before and after "Show all"
const HOUR = 3600, DAY = 86400; // seconds

// ---- elements and text ----

/** `make("td.n", …)`: texts and nodes become children; a plain object sets properties. */
function make(tag, ...parts) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const part of parts) typeof part === "string" || part instanceof Node ? made.append(part) : Object.assign(made, part);
  return made;
}

/** An element of SVG. */
function shape(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Text between backticks becomes `code` elements. */
const prose = (text) => text.split(/`([^`\n]+)`/).map((part, index) => index % 2 ? make("code", part) : part);
const count = (number) => number?.toLocaleString("en", { maximumFractionDigits: 1 }) ?? "–";
const compact = (number) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
const highest = (numbers) => numbers.reduce((most, number) => Math.max(most, number), 0);

function share(part, whole) {
  if (!part || !whole) return "0 %";
  if (part === whole) return "100 %";
  const percent = 100 * part / whole;
  if (percent < 0.01) return "< 0.01 %";
  return percent < 1 ? percent.toFixed(2) + " %" : Math.min(percent, 99.9).toFixed(1) + " %";
}

/** A moment in UTC, from seconds since 1970: `2026-11-22 23:59:58`. */
const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
const seconds = (time) => Date.parse(time) / 1000;

function span(length) {
  const units = [[DAY, "day"], [HOUR, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([size]) => length >= size) ?? [1, "s"];
  const rest = length % size, next = units[units.findIndex(([one]) => one === size) + 1];
  const first = count(Math.floor(length / size)) + " " + (unit === "day" && length >= 2 * DAY ? "days" : unit);
  return next && rest >= next[0] ? `${first} ${Math.floor(rest / next[0])} ${next[1]}` : first;
}

const milliseconds = (ms) => ms < 1000 ? count(ms) + " ms" : ms < 60000 ? count(ms / 1000) + " s" : span(ms / 1000);

// ---- choices and tables ----

/** A labelled choice. `options`: texts by index; `chosen` is called with the index. */
function choice(label, options, chosen, first = 0) {
  const select = make("select", { onchange: () => chosen(select.selectedIndex) }, ...options.map((option) => make("option", option)));
  select.selectedIndex = first;
  return make("label", label + " ", select);
}

/** Numbers before their absence, which is always last. */
function compare(a, b, descending) {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  return (a < b ? -1 : 1) * (descending ? -1 : 1);
}

const cellText = (column, row) => column.text ? column.text(row) : column.number ? count(column.value(row) ?? undefined) : String(column.value(row) ?? "");

/** A table that sorts by a click on a column's name. A column has `name` and `value(row)`; `text(row)` and `node(row)` replace the text
    of the value; `lost(row)` marks a cell. `sort` is the column that is sorted by, `filter` the label of a box that filters rows. */
function table({ label, columns, rows, sort = null, filter = null }) {
  let sorted = sort, descending = sort !== null, all = false, words = "";
  const body = make("tbody");
  const status = make("p.note", { role: "status" });
  const more = make("button.more", { type: "button", onclick: () => { all = !all; draw(); } });
  const texts = filter && rows.map((row) => columns.filter((column) => !column.number).map((column) => cellText(column, row)).join("\n").toLowerCase());
  const heads = columns.map((column, index) => make(column.number ? "th.n" : "th", { scope: "col" }, make("button.sort", { type: "button", onclick: () => {
    [sorted, descending] = [index, sorted === index ? !descending : Boolean(column.number)];
    draw();
  } }, column.name)));
  const cell = (column, row, index) => {
    const made = make((index ? "td" : "th") + (column.number ? ".n" : "") + (column.lost?.(row) ? ".lost" : ""), column.node?.(row) ?? cellText(column, row));
    if (!index) made.scope = "row";
    return made;
  };
  function draw() {
    const kept = words ? rows.filter((_, index) => texts[index].includes(words)) : [...rows];
    const { value } = columns[sorted] ?? {};
    if (value) kept.sort((a, b) => compare(value(a) ?? null, value(b) ?? null, descending));
    const shown = kept.slice(0, all ? MAX_ROWS : SHOWN_ROWS);
    body.replaceChildren(...shown.map((row) => make("tr", ...columns.map((column, index) => cell(column, row, index)))));
    heads.forEach((head, index) => head.ariaSort = index === sorted ? (descending ? "descending" : "ascending") : "none");
    more.hidden = kept.length <= SHOWN_ROWS;
    more.ariaExpanded = String(all);
    more.textContent = all ? `Show the first ${SHOWN_ROWS}` : kept.length > MAX_ROWS ? `Show the first ${count(MAX_ROWS)} of ${count(kept.length)}` : `Show all ${count(kept.length)}`;
    status.textContent = words ? `${count(kept.length)} of ${plural(rows.length, "row")}` : "";
  }
  const box = make("div.scroll", make("table", { ariaLabel: label }, make("thead", make("tr", ...heads)), body));
  const input = make("input", { type: "search", spellcheck: false, oninput: () => { words = input.value.trim().toLowerCase(); draw(); } });
  draw();
  return make("div.table", ...(filter && rows.length > 1 ? [make("label.filter", filter + " ", input)] : []), box, more, status);
}

// ---- charts ----

const EDGE = { left: 46, right: 14, top: 8, bottom: 22 }; // pixels around the plotted area

/** Round numbers from 0 to `top`, at most `most` steps. */
function roundSteps(top, most) {
  const rough = Math.max(1, top / most), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, index) => index * step);
}

/** Full hours, days … between two moments, about one in 80 pixels. */
function timeSteps(begin, end, width) {
  const steps = [1, 5, 15, 30, 60, 300, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY];
  const step = steps.find((step) => (end - begin) / step <= Math.max(2, width / 80)) ?? 365 * DAY;
  const first = Math.ceil(begin / step) * step;
  const label = (time) => time % DAY === 0 ? moment(time).slice(step >= 28 * DAY ? 0 : 5, 10) : moment(time).slice(11, step < 60 ? 19 : 16);
  return Array.from({ length: Math.floor((end - first) / step) + 1 }, (_, index) => ({ time: first + index * step, text: label(first + index * step) }));
}

const text = (x, y, anchor, content, kind = "tick") => shape("text", { x, y, class: kind, "text-anchor": anchor }, content);

function yAxis(ticks, y, width) {
  return ticks.flatMap((tick) => [
    shape("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick) }),
    text(EDGE.left - 6, y(tick) + 4, "end", compact(tick)),
  ]);
}

/** A chart drawn at the width of its box. `draw(width, height)` returns `label` (the chart in a sentence), its `nodes`, and `columns`, each
    with its place `x`, its `width` and its `text`. The pointer and the arrow keys read the columns. */
function chart({ title, cursor, height, legend = [], rest = "", below = [], draw }) {
  const readout = make("span.readout", { ariaHidden: "true" }, rest);
  const picture = shape("svg", { role: "img" });
  const slider = make("div.cursor", { role: "slider", tabIndex: 0, ariaLabel: cursor, ariaValueMin: "0" });
  const plot = make("div.plot", picture, slider);
  const figure = make("figure", make("figcaption", make("strong", title), ...legend.map(([colour, name]) => make(`i.c${colour}`, name)), readout), plot, ...below);
  const mark = shape("rect", { class: "mark", y: EDGE.top, height: height - EDGE.top - EDGE.bottom, visibility: "hidden" });
  let columns = [], at = null, drawn = 0;
  function point(index) {
    at = columns.length && index !== null ? Math.min(Math.max(index, 0), columns.length - 1) : null;
    const column = columns[at ?? 0];
    mark.setAttribute("visibility", at === null ? "hidden" : "visible");
    readout.textContent = at === null ? rest : column.text;
    if (!column) return;
    for (const name of ["x", "width"]) mark.setAttribute(name, column[name]);
    Object.assign(slider, { ariaValueNow: String(at ?? 0), ariaValueMax: String(columns.length - 1), ariaValueText: column.text });
  }
  function redraw() {
    drawn = plot.clientWidth;
    if (!drawn) return;
    const result = draw(drawn, height);
    columns = result.columns;
    picture.setAttribute("viewBox", `0 0 ${drawn} ${height}`);
    picture.setAttribute("aria-label", result.label);
    picture.replaceChildren(...result.nodes, mark);
    point(null);
  }
  slider.onpointermove = slider.onpointerdown = (event) => point(columns.findLastIndex((column) => column.x <= event.offsetX));
  slider.onpointerleave = (event) => event.pointerType === "mouse" && point(null); // after a touch, the values stay
  slider.onfocus = () => at ?? point(0);
  slider.onblur = () => point(null);
  slider.onkeydown = (event) => {
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    point((at ?? 0) + moves[event.key]);
  };
  new ResizeObserver(() => plot.clientWidth !== drawn && redraw()).observe(plot);
  return figure;
}

/** The area between two lists of heights, in steps. */
function area(xs, low, high, kind) {
  const top = high.map((y, index) => `V${y}H${xs[index + 1]}`).join("");
  const bottom = low.map((y, index) => `V${y}H${xs[index]}`).reverse().join("");
  return shape("path", { class: kind, d: `M${xs[0]} ${low[0]}${top}${bottom}Z` });
}

const joined = (numbers, each) => Array.from({ length: Math.ceil(numbers.length / each) }, (_, index) => sum(numbers.slice(index * each, (index + 1) * each)));

/** Requests over time, refused ones in the lower part; with `refusedOnly` those alone, on a scale of their own. */
function timeChart(timeline, { title, shadow, refusedOnly = false }) {
  const words = shadow ? "would be refused" : "refused", colour = shadow ? 4 : 3;
  const begin = seconds(timeline.begin);
  return chart({
    title, cursor: title + ": time", height: refusedOnly ? 110 : 200,
    legend: [...(refusedOnly ? [] : [[1, "admitted"]]), [colour, words]],
    rest: `${count(sum(timeline.requests))} requests, ${count(sum(timeline.refused))} ${words}`,
    draw(width, height) {
      const inner = width - EDGE.left - EDGE.right;
      const each = Math.max(1, Math.ceil(timeline.requests.length / Math.max(1, Math.floor(inner / 3))));
      const step = each * timeline.step_seconds;
      const [requests, refused] = [joined(timeline.requests, each), joined(timeline.refused, each)];
      const heights = refusedOnly ? refused : requests;
      const top = Math.max(1, highest(heights)) * 1.05;
      const x = (index) => Math.round(10 * (EDGE.left + inner * index / requests.length)) / 10;
      const y = (value) => Math.round(10 * (height - EDGE.bottom - (height - EDGE.top - EDGE.bottom) * value / top)) / 10;
      const xs = Array.from({ length: requests.length + 1 }, (_, index) => x(index));
      const ground = requests.map(() => y(0)), middle = refused.map(y);
      const peak = heights.indexOf(highest(heights));
      const end = begin + step * requests.length;
      const times = timeSteps(begin, end, inner);
      const tick = ({ time, text: content }) => text(Math.min(EDGE.left + inner * (time - begin) / (end - begin), width - 18), height - 6, "middle", content);
      const when = (index) => `${moment(begin + index * step)} UTC, ${span(step)}`;
      return {
        label: `${title}: ${count(sum(requests))} requests, ${count(sum(refused))} ${words}; the highest column is ${when(peak)}: ${count(heights[peak])}.`,
        nodes: [...yAxis(roundSteps(top, refusedOnly ? 2 : 4), y, width), ...times.map(tick), area(xs, ground, middle, `area c${colour}`), ...(refusedOnly ? [] : [area(xs, middle, requests.map(y), "area c1")])],
        columns: requests.map((all, index) => ({ x: x(index), width: Math.max(1, x(index + 1) - x(index)), text: `${when(index)}: ${plural(all, "request")}, ${count(refused[index])} ${words} (${share(refused[index], all)})` })),
      };
    },
  });
}

/** The whole numbers of a bin, whose upper end is not part of it. */
function binText({ from, to }) {
  const [low, high] = [Math.ceil(from), Math.ceil(to) - 1];
  return high > low ? `${count(low)} to ${count(high)}` : count(high < low ? from : low);
}

/** Round numbers on a logarithmic scale. */
function logSteps(low, high, most) {
  const steps = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) for (const factor of [1, 2, 5]) steps.push(factor * power);
  const inside = steps.filter((step) => step >= low && step <= high);
  const powers = inside.filter((step) => Number.isInteger(Math.round(1e9 * Math.log10(step)) / 1e9));
  return inside.length <= most || powers.length < 2 ? inside : powers;
}

/** How many keys have which peak in a window, both on logarithmic scales, with the limit as a line. */
function distribution(window, title) {
  const bins = window.bins.filter((bin) => bin.keys > 0);
  const limit = window.limit ?? null;
  const above = limit === null ? 0 : sum(bins.filter((bin) => bin.from > limit).map((bin) => bin.keys));
  const rest = limit === null ? plural(window.keys, "key") : `${plural(window.keys, "key")}, ${count(above)} in bars above the limit`;
  return chart({
    title, cursor: title + ": peak", height: 206, legend: limit === null ? [[1, "keys"]] : [[1, "keys within the limit"], [3, "keys above it"]], rest,
    below: [make("p.note", `Keys by their peak: the requests of a key in its busiest ${span(window.seconds)}. Both scales are logarithmic.`)],
    draw(width, height) {
      const low = Math.max(0.5, Math.min(...bins.map((bin) => bin.from), limit ?? Infinity));
      const high = Math.max(...bins.map((bin) => bin.to), (limit ?? 0) * 1.15, low * 2);
      const most = highest(bins.map((bin) => bin.keys));
      const scale = (value, from, to) => Math.log(Math.max(value, from) / from) / Math.log(to / from);
      const x = (value) => EDGE.left + (width - EDGE.left - EDGE.right) * scale(value, low, high);
      const floor = height - EDGE.bottom, y = (keys) => floor - (floor - EDGE.top - 12) * scale(keys, 0.5, Math.max(most, 2));
      const bar = (bin) => shape("rect", { class: `area c${limit !== null && bin.from > limit ? 3 : 1}`, x: x(bin.from), width: Math.max(1.5, x(bin.to) - x(bin.from) - 1), y: y(bin.keys), height: floor - y(bin.keys) });
      const ticks = logSteps(low, high, width / 60).map((tick) => text(x(tick), height - 6, "middle", compact(tick)));
      const line = limit === null ? [] : [
        shape("line", { class: "limit", x1: x(limit), x2: x(limit), y1: EDGE.top, y2: floor }),
        text(x(limit) + (x(limit) > width / 2 ? -6 : 6), EDGE.top + 9, x(limit) > width / 2 ? "end" : "start", `the limit admits ${count(limit)}`, "limit-text"),
      ];
      return {
        label: `${title}: ${rest}. ${limit === null ? "" : `The limit admits ${count(limit)} requests in this window. `}The highest peaks are ${binText(bins.reduce((a, b) => b.from > a.from ? b : a))} requests.`,
        nodes: [...yAxis(logSteps(1, Math.max(most, 2), 4), y, width), ...bins.map(bar), ...ticks, ...line],
        columns: [...bins].sort((a, b) => a.from - b.from).map((bin) => ({ x: x(bin.from), width: Math.max(1.5, x(bin.to) - x(bin.from) - 1), text: `${binText(bin)} requests: ${plural(bin.keys, "key")}` })),
      };
    },
  });
}
