// The sections of the report. A section is left out when its part of the data is missing or empty.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const report = data.report ?? {};
const modes = new Map((report.limits ?? []).map((limit) => [limit.name, limit.mode]));

const section = (id, title, ...parts) => make("section", { id }, make("h2", title), ...parts);
/** Puts choices or buttons beside a section's heading. */
function withControls(made, ...controls) {
  const heading = made.firstChild;
  const head = make("div.title");
  heading.replaceWith(head);
  head.append(heading, ...controls);
  return made;
}

const note = (text) => make("p.note", ...prose(text));
const notes = (list) => make("ul", ...list.map((one) => make("li", ...prose(one))));
const keyName = (key) => key === "" ? "everyone" : key; // the only key of a limit with `key = "global"`
const wasRefused = (row) => row.refused > 0;

// ---- columns that tables share ----

const number = (name, value, more = {}) => ({ name, number: true, value, ...more });
const ofRefused = (lost = wasRefused) => [
  number("Requests", (row) => row.requests),
  number("Refused", (row) => row.refused, { lost }),
  number("Share refused", (row) => row.requests ? row.refused / row.requests : 0, { text: (row) => share(row.refused, row.requests) }),
];
/** A column that is shown only if a row has a number other than 0 there. */
const unlessEmpty = (rows, column) => rows.some((row) => column.value(row)) ? [column] : [];

function limitName(name) {
  const label = make("span", name);
  if (modes.get(name) === "shadow") label.append(make("span.tag.shadow", "shadow"));
  if (modes.get(name) === "off") label.append(make("span.tag", "off"));
  return label;
}

// ---- the answer ----

function facts() {
  const parts = [];
  const { from = data.span?.from, to = data.span?.to } = report;
  if (from && to) parts.push(`${moment(seconds(from))} to ${moment(seconds(to))} UTC (${span(Math.max(1, seconds(to) - seconds(from)))})`);
  else if (typeof data.span === "string") parts.push(data.span);
  const lines = report.lines ?? data.log?.lines;
  if (lines) parts.push(plural(lines, "line"));
  const files = data.log?.files ?? [];
  if (files.length) parts.push(files.join(", "));
  $("facts").textContent = parts.join(" · ");
}

/** The numbers below the answer: a name, the number, what it means, and its colour. */
function numbers() {
  if (report.requests === undefined) return null;
  const { requests, clients } = report;
  const people = (report.refused_clients ?? []).filter((client) => client.looks_like_a_person).length;
  const part = (name, value, whole, noun, kind = "") => ({ name, value, detail: `${share(value, whole)} of ${plural(whole, noun)}`, kind: value ? kind : "" });
  const tiles = [
    part("Requests refused", report.refused, requests, "request", "bad"),
    ...(report.shadow_refused ? [part("Would be refused by shadow limits", report.shadow_refused, requests, "request", "shadow")] : []),
    ...(report.delayed ? [part("Requests delayed", report.delayed, requests, "request", "delayed")] : []),
    ...(clients ? [part("Clients with refusals", report.clients_refused, clients, "client", "bad")] : []),
    ...(report.clients_refused ? [{ name: "Look like people", value: people, detail: "of the clients with refusals", kind: people ? "bad" : "" }] : []),
    ...(report.clients_refused ? [{ name: "Lose more than half", value: report.clients_losing_most, detail: "of the clients with refusals", kind: report.clients_losing_most ? "bad" : "" }] : []),
    ...(report.answered ? [part("Answered before any limit", report.answered, requests, "request")] : []),
    ...(report.skipped ? [part("Lines that are no request", report.skipped, report.lines, "line")] : []),
  ];
  $("answer").classList.toggle("bad", people > 0);
  return make("dl.numbers", { id: "numbers" }, ...tiles.map(({ name, value, detail, kind }) =>
    make("div", make("dt", name), make("dd" + (kind && "." + kind), count(value)), make("dd.note", detail))));
}

function interrupted() {
  if (!(report.interrupted ?? data.log?.interrupted)) return null;
  return make("p.verdict.bad", { id: "interrupted" }, "Reading was interrupted: the numbers are those up to that point.");
}

function comparison() {
  const { against } = report;
  if (!against) return null;
  const by = new Map();
  const add = (list, name) => (list ?? []).forEach(({ limit, requests }) => by.set(limit, { limit, refused: 0, admitted: 0, ...by.get(limit), [name]: requests }));
  add(against.newly_refused_by, "refused");
  add(against.newly_admitted_from, "admitted");
  const rows = [...by.values()];
  const columns = [
    { name: "Limit", value: (row) => row.limit, node: (row) => limitName(row.limit) },
    number("Newly refused", (row) => row.refused, { lost: wasRefused }),
    number("Newly admitted", (row) => row.admitted),
  ];
  return section("against", "Compared with the other file",
    make("p", make("strong", count(against.newly_refused)), " newly refused, ", make("strong", count(against.newly_admitted)), ` newly admitted. The other file refuses ${count(against.refused)} requests, this one ${count(report.refused)}.`),
    ...(rows.length ? [table({ label: "Changes by limit", columns, rows, sort: 1 })] : []));
}

// ---- time ----

function timeline() {
  const filled = (one) => one?.requests?.length;
  const all = [
    ...(filled(data.timeline) ? [{ name: "all requests", timeline: data.timeline }] : []),
    ...(data.limits ?? []).filter((limit) => filled(limit.timeline)),
  ];
  if (!all.length) return null;
  const charts = make("div");
  function show(index) {
    const { name, timeline } = all[index];
    const shadow = modes.get(name) === "shadow";
    const [most, refused] = [highest(timeline.requests), highest(timeline.refused)];
    // Refusals that are a thin line beside the requests have a chart with a scale of their own.
    const alone = refused > 0 && refused < most / 5 ? [timeChart(timeline, { title: shadow ? "Would be refused" : "Refused", shadow, refusedOnly: true })] : [];
    charts.replaceChildren(timeChart(timeline, { title: "Requests", shadow }), ...alone);
  }
  show(0);
  const made = section("timeline", "Requests and refusals over time", charts);
  return all.length > 1 ? withControls(made, choice("Show", all.map((one) => one.name), show)) : made;
}

function calendar() {
  const days = (data.calendar ?? []).filter((day) => day.requests?.length);
  if (!days.length) return null;
  const hours = Array.from({ length: 24 }, (_, hour) => hour);
  const hasRefused = days.some((day) => day.refused?.some((number) => number > 0));
  const names = ["requests", "refused"];
  const body = make("tbody"), scale = make("p.note.scale");
  function show(index) {
    const name = names[index];
    const most = highest(days.map((day) => highest(day[name] ?? [])));
    const box = (day, hour) => {
      const number = day[name]?.[hour] ?? 0;
      const cell = make("td", { title: `${day.day} ${String(hour).padStart(2, "0")}:00 UTC: ${plural(day.requests[hour] ?? 0, "request")}, ${count(day.refused?.[hour] ?? 0)} refused` }, number ? compact(number) : "");
      if (number) cell.style.setProperty("--heat", `${Math.round(8 + 42 * number / most)}%`);
      return cell;
    };
    body.replaceChildren(...days.map((day) => make("tr", make("th", { scope: "row" }, day.day), ...hours.map((hour) => box(day, hour)))));
    body.parentElement?.classList.toggle("refused", name === "refused");
    scale.replaceChildren(make("span.ramp" + (name === "refused" ? ".refused" : ""), { ariaHidden: "true" }), ` 1 to ${count(most)} ${name === "refused" ? "refused requests" : "requests"} an hour; the scale is linear, an empty cell is 0. Hours are UTC.`);
  }
  const head = make("tr", make("th", { scope: "col" }, "Day"), ...hours.map((hour) => make("th", { scope: "col" }, String(hour).padStart(2, "0"))));
  const heat = make("div.scroll.days", { tabIndex: 0, role: "region", ariaLabel: "Requests by day and hour" }, make("table.heat", { ariaLabel: "Requests by day and hour" }, make("thead", head), body));
  show(0);
  const made = section("calendar", "By day and hour", heat, scale);
  return hasRefused ? withControls(made, choice("Show", names, show)) : made;
}

// ---- limits, routes and keys ----

function limits() {
  const rows = report.limits ?? [];
  if (!rows.length) return null;
  const columns = [
    { name: "Limit", value: (row) => row.name, node: (row) => limitName(row.name) },
    ...ofRefused((row) => row.refused > 0 && row.mode !== "shadow"),
    number("Keys", (row) => row.keys),
    number("Keys refused", (row) => row.keys_refused),
    ...unlessEmpty(rows, number("Delayed", (row) => row.delayed)),
    ...unlessEmpty(rows, number("Mean delay", (row) => row.delay_mean_ms, { text: (row) => row.delayed ? milliseconds(row.delay_mean_ms) : "–" })),
    ...unlessEmpty(rows, number("Longest delay", (row) => row.delay_max_ms, { text: (row) => row.delayed ? milliseconds(row.delay_max_ms) : "–" })),
    ...unlessEmpty(rows, number("Exempt", (row) => row.exempt)),
  ];
  return section("limits", "Limits", table({ label: "Limits", columns, rows, sort: 2 }));
}

function routes() {
  const rows = report.routes ?? [];
  if (!rows.length) return null;
  const columns = [
    { name: "Route", value: (row) => row.name },
    ...ofRefused(),
    ...unlessEmpty(rows, number("Would be refused (shadow)", (row) => row.shadow_refused)),
    ...unlessEmpty(rows, number("Delayed", (row) => row.delayed)),
  ];
  return section("routes", "Routes", table({ label: "Routes", columns, rows, sort: 1 }));
}

/** A distribution for each window, and a choice of the window. */
function windowCharts(windows, title) {
  const filled = windows.filter((window) => window.bins?.some((bin) => bin.keys > 0));
  if (!filled.length) return null;
  const box = make("div");
  const show = (index) => box.replaceChildren(distribution(filled[index], `${title}, window of ${span(filled[index].seconds)}`));
  // The window in which the limit is nearest to the keys: the one that most keys exceed, else the middle one.
  const above = filled.map((window) => sum(window.bins.filter((bin) => bin.from > (window.limit ?? Infinity)).map((bin) => bin.keys)));
  const first = highest(above) ? above.indexOf(highest(above)) : Math.floor((filled.length - 1) / 2);
  show(first);
  return { box, control: choice("Window", filled.map((window) => span(window.seconds)), show, first) };
}

function peaks() {
  const all = (data.limits ?? []).map(({ name, peaks }) => ({ name, charts: windowCharts(peaks?.windows ?? [], `Peaks of ${name}`) })).filter((one) => one.charts);
  if (!all.length) return null;
  const box = make("div"), controls = make("div.actions");
  const chooser = all.length > 1 ? [choice("Limit", all.map((one) => one.name), show)] : [];
  function show(index) {
    box.replaceChildren(all[index].charts.box);
    controls.replaceChildren(...chooser, all[index].charts.control);
  }
  show(0);
  return withControls(section("peaks", "Peaks per key", box), controls);
}

function keys() {
  const rows = report.refused_keys ?? [];
  if (!rows.length) return null;
  const columns = [
    { name: "Key", value: (row) => keyName(row.key) },
    { name: "Limit", value: (row) => row.limit, node: (row) => limitName(row.limit) },
    ...ofRefused((row) => row.refused > row.requests / 2),
  ];
  const all = sum((report.limits ?? []).map((limit) => limit.keys_refused ?? 0));
  return section("keys", "Keys hit hardest", table({ label: "Keys hit hardest", columns, rows, sort: 3, filter: "Filter" }),
    ...(all > rows.length ? [note(`${count(rows.length)} of ${count(all)} refused keys are listed: for each limit those with the most refusals.`)] : []));
}

function clients() {
  const rows = report.refused_clients ?? [];
  if (!rows.length) return null;
  const columns = [{ name: "Client", value: (row) => row.client }, ...ofRefused((row) => row.refused > row.requests / 2)];
  const group = (title, id, chosen) => make("div", { id }, make("h3", `${title}: ${count(chosen.length)}`),
    chosen.length ? table({ label: title, columns, rows: chosen, sort: 2 }) : note("No client with refused requests."));
  return section("clients", "Clients with refused requests",
    make("div.columns", group("Look like people", "people", rows.filter((row) => row.looks_like_a_person)), group("Look automated", "automated", rows.filter((row) => !row.looks_like_a_person))),
    ...(report.person_rule ? [note(`Rule: ${report.person_rule}.`)] : []),
    ...(report.clients_refused > rows.length ? [note(`${count(rows.length)} of ${count(report.clients_refused)} clients are listed: those with the most refusals.`)] : []));
}

// ---- the log ----

function decisions() {
  const own = report.log_decisions;
  if (!own) return null;
  const compared = own.same + own.different;
  const columns = [
    { name: "Line", value: (row) => row.line, text: (row) => `${row.file ?? ""}:${row.line}` },
    { name: "Decision in the log", value: (row) => row.log },
    { name: "Decision here", value: (row) => row.replay },
  ];
  const first = own.first_differences ?? [];
  return section("decisions", "Decisions in the log",
    make("p", make("strong", `${count(own.same)} of ${count(compared)}`), ` decisions are the same here (${share(own.same, compared)}).`),
    ...(own.not_comparable ? [note(`${plural(own.not_comparable, "request")} cannot be compared: a shared store decided, or the request ended before a decision.`)] : []),
    ...(first.length ? [make("h3", "First differences"), table({ label: "First differences", columns, rows: first })] : []));
}

function problems() {
  const rows = report.problems ?? data.log?.problems ?? [];
  if (!rows.length) return null;
  const columns = [
    { name: "Reason", value: (row) => row.reason },
    number("Lines", (row) => row.lines),
    { name: "First", value: (row) => row.first },
    { name: "Its text", value: (row) => row.text, node: (row) => make("code", row.text) },
  ];
  return section("problems", "Lines that are no request", table({ label: "Lines that are no request", columns, rows, sort: 1 }));
}

function remarks() {
  const list = report.notes ?? data.log?.notes ?? [];
  return list.length ? section("notes", "Notes", notes(list)) : null;
}

// ---- suggested limits ----

/** Copies a text; in a page without the right to, the text is selected and copied as a person would. */
function copyButton(label, text, source) {
  const button = make("button", { type: "button", onclick: async () => {
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    getSelection().selectAllChildren(source);
    const copied = done || document.execCommand("copy");
    button.textContent = copied ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => button.textContent = label, 4000);
  } }, label);
  return button;
}

const rateText = (one) => [one.algorithm, (one.rates ?? []).join(" and ")].filter(Boolean).join(" ") + (one.burst?.length ? `, burst ${one.burst.join(" and ")}` : "");

function overview(suggestions) {
  if (suggestions.length < 2) return null;
  const columns = [
    { name: "Limit", value: (row) => row.name },
    { name: "Route", value: (row) => row.route },
    { name: "Key", value: (row) => row.key },
    { name: "Proposal", value: rateText },
    number("Requests", (row) => row.requests),
    number("Keys", (row) => row.keys),
    number("Outliers", (row) => row.outliers?.length ?? 0, { lost: (row) => row.outliers?.length > 0 }),
  ];
  const toml = suggestions.map((one) => one.toml).filter(Boolean).join("\n");
  const all = make("pre", toml);
  const made = section("overview", "Suggested limits", table({ label: "Suggested limits", columns, rows: suggestions, sort: 4 }),
    ...(toml ? [make("details", make("summary", "All as TOML"), all)] : []));
  return toml ? withControls(made, copyButton("Copy all", toml, all)) : made;
}

function windowTable(windows) {
  const columns = [
    { name: "Window", value: (row) => row.seconds, text: (row) => span(row.seconds) },
    number("Keys", (row) => row.keys),
    number("Peak of ordinary keys", (row) => row.ordinary_peak),
    ...unlessEmpty(windows, number("Peak of outliers", (row) => row.outlier_peak)),
    ...unlessEmpty(windows, number("The proposal admits", (row) => row.limit)),
  ];
  return table({ label: "Windows", columns, rows: windows });
}

function outlierTable(outliers) {
  const lengths = [...new Set(outliers.flatMap((outlier) => Object.keys(outlier.peaks ?? {})))].map(Number).sort((a, b) => a - b);
  const columns = [
    { name: "Key", value: (row) => keyName(row.key) },
    number("Requests", (row) => row.requests),
    ...lengths.map((length) => number(`Peak in ${span(length)}`, (row) => row.peaks?.[length])),
  ];
  return table({ label: "Outliers", columns, rows: outliers, sort: 1, filter: "Filter" });
}

function suggestion(one, index) {
  const charts = windowCharts(one.windows ?? [], "Peaks per key");
  const source = make("pre", { tabIndex: 0 }, one.toml ?? "");
  const about = [one.route && `route ${one.route}`, one.key && `key ${one.key}`, rateText(one), one.requests !== undefined && plural(one.requests, "request"),
    one.keys !== undefined && plural(one.keys, "key"), one.ordinary !== undefined && `${count(one.ordinary)} of them ordinary`];
  const block = (title, control, ...parts) => [withControls(make("div.part", make("h3", title), ...parts), ...control)];
  const left = [
    ...(one.toml ? block("Proposal", [copyButton("Copy", one.toml, source)], source) : []),
    ...(one.notes?.length ? block("Reasons", [], notes(one.notes)) : []),
  ];
  const right = charts ? block("Distribution of peaks", [charts.control], charts.box) : [];
  return section(`suggestion-${index + 1}`, one.name ?? "Limit", make("p.note", about.filter(Boolean).join(" · ")),
    left.length && right.length ? make("div.columns", make("div", ...left), make("div", ...right)) : make("div", ...left, ...right),
    ...(one.windows?.length ? block("Windows", [], windowTable(one.windows)) : []),
    ...(one.outliers?.length ? block(`Outliers: ${count(one.outliers.length)}`, [], outlierTable(one.outliers)) : []));
}

// ---- the page ----

function colourChoice() {
  const schemes = ["as the system", "light", "dark"];
  return choice("Colours", schemes, (index) => {
    if (index) document.documentElement.dataset.scheme = schemes[index];
    else delete document.documentElement.dataset.scheme;
  });
}

function build() {
  const suggestions = data.suggestions ?? [];
  facts();
  document.querySelector("header").append(colourChoice());
  const parts = [interrupted(), numbers(), comparison(), timeline(), calendar(), overview(suggestions), ...suggestions.map(suggestion),
    limits(), routes(), peaks(), keys(), clients(), decisions(), problems(), remarks()];
  document.querySelector("main").append(...parts.filter(Boolean));
}

build();
