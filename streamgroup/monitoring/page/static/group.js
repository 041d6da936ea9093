import { barPaths, Chart, line } from "./charts.js";
import { color, el, ownerColor, setText, Table } from "./dom.js";
import { compact, count, dayAndTime, plural, rate, span, suffix, words } from "./format.js";
import { badge, batchInFlight, trend } from "./groups.js";
import { heldKey, heldMark } from "./topic.js";
import { Lanes, markColor } from "./lanes.js";

export const tab = "groups";
export const title = (name) => `Group ${name}`;
export function url(name, state) {
  const query = new URLSearchParams({ name });
  for (const chosen of state.lines ?? []) query.append("line", chosen);
  return `/api/group?${query}`;
}

const MOST_LINES = 8;
const PHASES = 5;
const REST = "the rest";

export function mount(main, name, state, again) {
  state.lines = [];
  const head = el("div", { class: "bar" });
  const tiles = el("div", { class: "tiles" });
  const parts = {
    owners: new Lanes("owners", "the member that held each partition, over time"),
    heat: new Lanes("heat", "the lag of each partition, over time"),
    lag: new Chart(() => [line("all partitions", color("text"), count, { width: 2.5 }), ...lagLines(state)], { each: true }),
    rates: new Chart(() => ["written", "committed"].map((name) => line(name, color(name), (value) => rate(value, state.data.unit)))),
  };
  const legend = el("ul", { class: "legend" });
  const rates = card("", "", parts.rates.node);
  const ramp = heatLegend();
  const marks = el("ol", { class: "events" });
  const batches = batchCards();
  const members = new Table(memberColumns(), { key: (row) => row.id, label: "Members" });
  const partitions = new Table(partitionColumns(state, again), { key: (row) => row.id, label: "Partitions" });
  const sort = el("button", { type: "button", "aria-pressed": "false" }, "Largest lag first");
  const showPartitions = () => partitions.update(sorted(state.data.partitions, state.byLag));
  sort.addEventListener("click", () => {
    state.byLag = !state.byLag;
    sort.setAttribute("aria-pressed", String(state.byLag));
    if (state.data) showPartitions();
  });
  main.append(
    head,
    tiles,
    el(
      "div",
      { class: "grid" },
      card("Who held which partition", "two", parts.owners.node, legend),
      card("Events", "", marks),
      card("Lag of each partition", "two", parts.heat.node, ramp.node),
      card("Lag: of all partitions (left), of each (right)", "", parts.lag.node),
      rates,
      batches.node,
      el("section", { class: "full" }, el("h2", {}, "Members"), el("div", { class: "card scroll" }, members.node)),
      el("section", { class: "full" }, el("h2", {}, "Partitions ", sort), el("div", { class: "card tall" }, partitions.node)),
    ),
  );
  return {
    update(data) {
      state.data = data;
      prepare(data);
      showHead(head, data);
      showTiles(tiles, data);
      showLegend(legend, data);
      showMarks(marks, data);
      parts.owners.update(data);
      parts.heat.update(data);
      ramp.update(data);
      state.shown = data.lines.map((one) => one.name);
      parts.lag.update(lagData(data), state.shown.join());
      setText(rates.firstChild, data.unit === "bytes" ? "Bytes per second" : "Records per second");
      const { times, written_per_s: written, committed_per_s: committed } = data.totals;
      parts.rates.update([times, written, committed]);
      batches.update(data.batches);
      members.update(data.members_list);
      showPartitions();
    },
    draw() {
      Object.values(parts).forEach((part) => part.draw());
      batches.draw();
      if (state.data) [showLegend, showMarks].forEach((show, n) => show([legend, marks][n], state.data));
    },
  };
}

const sorted = (rows, byLag) => (byLag ? [...rows].sort((one, other) => (other.lag ?? -1) - (one.lag ?? -1)) : rows);

const card = (head, kind, ...nodes) => el("section", { class: `card ${kind}` }, el("h2", {}, head), ...nodes);

/** Adds what several parts need: the names of the owners, and the largest lag. */
function prepare(data) {
  const clients = new Map(data.members_list.map((member) => [member.id, member]));
  data.ownerNames = data.owners.map((id) => memberName(clients.get(id), id));
  data.mostLag = data.heat.reduce((most, lags) => lags.reduce((m, lag) => Math.max(m, lag ?? 0), most), 0);
}

/** `client-id (…1f3a)`: the ids of members are long, and those of one client differ in their ends. */
function memberName(member, id) {
  const label = member?.local?.name || member?.client || id.split("-").slice(0, -5).join("-") || id;
  return id.length > 8 && label !== id ? `${label} (…${id.slice(-4)})` : label;
}

function showHead(head, data) {
  const key = JSON.stringify([data.group, data.state, data.coordinator, data.strategy, data.epoch, data.pauses, data.stores]);
  if (head.dataset.key === key) return;
  head.dataset.key = key;
  const stores = data.stores.map((where) => `offset table in ${where}`);
  const epoch = data.epoch === null ? "" : `epoch ${data.epoch}`;
  const about = [data.strategy, epoch, data.coordinator && `coordinator ${data.coordinator}`, ...stores].filter(Boolean).join(", ");
  head.replaceChildren(
    el("a", { class: "crumb", href: "#/groups" }, "← Groups"),
    el("h1", {}, data.group || "(empty group id)"),
    badge(data.state),
    ...data.pauses.map((one) => el("span", { class: "badge warn", title: `Paused by streamgroup pause: ${one.name}` }, pauseText(one))),
    el("span", { class: "sub" }, about),
  );
}

const pauseText = (one) => (one.whole ? `${one.name} is paused` : `${plural(one.partitions, "partition")} of ${one.name} paused`);

function showTiles(tiles, data) {
  const unit = suffix(data.unit);
  const tile = (value, text) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, text));
  const left = data.seconds_left === null ? null : tile(span(data.seconds_left), "until caught up");
  tiles.replaceChildren(
    tile(count(data.lag) + unit, "lag"),
    el("div", { class: "tile" }, el("b", {}, trend({ ...data, seconds_left: null })), el("span", {}, "trend, last minute")),
    ...(left ? [left] : []),
    tile(rate(data.written_per_s, data.unit), "written"),
    tile(rate(data.committed_per_s, data.unit), "committed"),
    tile(count(data.members), "members"),
    tile(count(data.partitions_count), `partitions of ${plural(data.topics.length, "topic")}`),
  );
}

function showLegend(legend, data) {
  const held = data.owners.map((_, number) => data.partitions.filter((row) => row.owner === number).length);
  const items = data.owners.map((_, number) => {
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = ownerColor(number);
    return el("li", {}, swatch, `${data.ownerNames[number]}: ${held[number] ? plural(held[number], "partition") : "nothing now"}`);
  });
  legend.replaceChildren(...(items.length ? items : [el("li", {}, "No member has held a partition since this page began to read.")]));
}

function showMarks(list, data) {
  const items = [...data.marks].reverse().slice(0, 100).map((mark) => {
    const kind = el("span", { class: "badge" }, mark.kind.replace("_", " "));
    kind.style.color = markColor(mark.kind);
    return el("li", {}, el("time", {}, dayAndTime(mark.at)), kind, el("span", {}, mark.text));
  });
  list.replaceChildren(...(items.length ? items : [el("li", { class: "sub" }, "None since this page began to read.")]));
}

function heatLegend() {
  const most = el("span");
  const node = el("ul", { class: "legend" }, el("li", {}, "lag 0", el("i", { class: "ramp" }), most));
  return { node, update: (data) => setText(most, count(data.mostLag)) };
}

// -- the lag chart: all partitions together, and a line for each of those chosen or of the largest --

const lagLines = (state) => (state.shown ?? []).map((name, number) => line(name, ownerColor(number), count, { width: 1.3, scale: "each" }));

function lagData(data) {
  const totals = new Map(data.totals.times.map((at, number) => [at, data.totals.lag[number]]));
  return [data.times, data.times.map((at) => totals.get(at) ?? nearest(data.totals, at)), ...data.lines.map((one) => one.lags)];
}

/** The two series may be thinned differently. */
function nearest(totals, at) {
  let best = null;
  totals.times.forEach((time, number) => {
    if (best === null || Math.abs(time - at) < Math.abs(totals.times[best] - at)) best = number;
  });
  return best === null ? null : totals.lag[best];
}

// -- batches --

function batchCards() {
  const cards = new Map();
  const none = card(
    "Batches",
    "",
    el("p", { class: "sub" }, "Members on this machine, of this user, show their batches if their application called "),
    el("code", {}, "streamgroup.listen(spark)"),
  );
  const node = el("div", { class: "flow" }, none);
  return {
    node,
    update(runs) {
      none.hidden = runs.some((run) => run.batches.length);
      let place = 1; // behind `none`
      const ended = (run) => -(run.batches[run.batches.length - 1]?.at ?? 0);
      for (const run of [...runs].sort((one, other) => ended(one) - ended(other))) {
        if (!run.batches.length) continue;
        if (!cards.has(run.run)) {
          cards.set(run.run, batchCard(run));
        }
        if (node.children[place] !== cards.get(run.run).node) node.insertBefore(cards.get(run.run).node, node.children[place] ?? null);
        place += 1;
        cards.get(run.run).update(run);
      }
      for (const [id, known] of cards) {
        if (!runs.some((run) => run.run === id)) {
          known.node.remove();
          cards.delete(id);
        }
      }
    },
    draw: () => cards.forEach((known) => known.chart.draw()),
  };
}

function batchCard(run) {
  const about = el("p", { class: "sub" });
  let phases = [];
  const seconds = (value) => (value === null || value === undefined ? "–" : `${compact(Math.round(value)) } ms`);
  const chart = new Chart(
    () =>
      phases.map((phase, number) => ({
        ...line(words(phase), ownerColor(number), seconds),
        // The values are sums, so that the bars stand on each other. The legend has the phase's own.
        value: (plot, _, series, index) => seconds(own(plot.data, series, index ?? plot.data[0].length - 1)),
        fill: ownerColor(number),
        paths: barPaths(),
      })),
    { value: (ms) => `${compact(ms)} ms` },
  );
  return {
    node: card(`Batches of ${run.name}`, "", chart.node, about),
    chart,
    update(now) {
      phases = largestPhases(now.batches);
      const last = now.batches[now.batches.length - 1];
      setText(about, `batch ${last.number}: ${plural(last.rows, "row")} at ${dayAndTime(last.at)} in ${compact(last.phases.triggerExecution ?? 0)} ms`);
      chart.update(stacked(now.batches, phases), phases.join());
    },
  };
}

const own = (data, series, index) => data[series][index] - (series + 1 < data.length ? data[series + 1][index] : 0);

function largestPhases(batches) {
  const sums = new Map();
  for (const batch of batches) {
    for (const [phase, ms] of Object.entries(batch.phases)) {
      if (phase !== "triggerExecution") sums.set(phase, (sums.get(phase) ?? 0) + ms);
    }
  }
  const largest = [...sums].sort((one, other) => other[1] - one[1]).slice(0, PHASES).map(([phase]) => phase);
  return batches.some((batch) => restOf(batch, largest) > 0) ? [...largest, REST] : largest;
}

/** The time of a batch that none of these phases has, so that its bar is as long as the whole batch. */
function restOf(batch, phases) {
  const shown = phases.reduce((sum, phase) => sum + (batch.phases[phase] ?? 0), 0);
  return Math.max(0, (batch.phases.triggerExecution ?? 0) - shown);
}

/** Each series is the sum of its phase and those after it, and is drawn over the one before. */
function stacked(batches, phases) {
  const named = phases.filter((phase) => phase !== REST);
  const msOf = (batch, phase) => (phase === REST ? restOf(batch, named) : batch.phases[phase] ?? 0);
  const rows = phases.map((_, first) =>
    batches.map((batch) => phases.slice(first).reduce((sum, phase) => sum + msOf(batch, phase), 0)),
  );
  return [batches.map((batch) => batch.at), ...rows];
}

// -- tables --

function memberColumns() {
  const local = (row) => row.local;
  return [
    { title: "Member", kind: "name", cell: (row) => ({ key: row.id + row.client, node: () => el("div", {}, memberName(row, row.id), el("span", { class: "sub wide" }, row.id)) }) },
    { title: "Host", kind: "wide", cell: (row) => row.host || "–" },
    { title: "Partitions", kind: "num", cell: (row) => movesTo(row) },
    { title: "State", kind: "", cell: (row) => (local(row) ? `${local(row).state}${local(row).draining ? ", draining" : ""}` : "–") },
    { title: "Batch in flight", kind: "", cell: (row) => batchInFlight(local(row)) },
    { title: "Query", kind: "wide", cell: (row) => local(row)?.query || "–" },
    { title: "Generation or epoch", kind: "num wide", cell: (row) => count(row.epoch ?? local(row)?.generation) },
    { title: "Events", kind: "", cell: (row) => eventsOf(local(row)) },
  ];
}

/** The number of partitions that a member holds and, if the group moves partitions (KIP-848), the number it will hold. */
function movesTo(row) {
  return row.target === null || row.target === row.partitions ? count(row.partitions) : `${count(row.partitions)} → ${count(row.target)}`;
}

function eventsOf(local) {
  if (!local) return "–";
  const had = Object.entries(local.events).filter(([, number]) => number);
  return had.map(([kind, number]) => `${number} ${kind.replace("_", " ")}`).join(", ") || "none";
}

function partitionColumns(state, again) {
  const choose = (id) => {
    state.lines = state.lines.includes(id) ? state.lines.filter((one) => one !== id) : [...state.lines, id].slice(-MOST_LINES);
    again();
  };
  const box = (row) =>
    el("input", { type: "checkbox", "aria-label": `Lag of ${row.id} as a line`, checked: state.lines.includes(row.id), onchange: () => choose(row.id) });
  return [
    { title: "Line", kind: "", cell: (row) => ({ key: state.lines.includes(row.id), node: () => box(row) }) },
    { title: "Partition", kind: "name", cell: (row) => ({ key: `${row.id} ${row.paused} ${heldKey(row)}`, node: () => partitionName(row) }) },
    { title: "Committed", kind: "num wide", cell: (row) => count(row.committed) },
    { title: "Log end", kind: "num wide", cell: (row) => count(row.end) },
    { title: "Lag", kind: "num", cell: (row) => count(row.lag) },
    { title: "Member", kind: "", cell: (row) => ({ key: ownerKey(row, state.data), node: () => owners(row, state.data) }) },
  ];
}

function partitionName(row) {
  const link = el("a", { href: `#/topic/${encodeURIComponent(row.topic)}` }, `${row.topic}-${row.name}`);
  const marks = [row.paused ? el("span", { class: "badge warn" }, "paused") : null, heldMark(row)].filter(Boolean);
  return marks.length ? el("span", {}, link, ...marks.flatMap((mark) => [" ", mark])) : link;
}

const ownerKey = (row, data) => `${row.owner} ${data.ownerNames[row.owner]} ${row.next} ${data.ownerNames[row.next]}`;

/** The member that holds a partition and, if the group moves the partition (KIP-848), the member that gets it. */
function owners(row, data) {
  const now = owner(row.owner, data);
  return row.next === null ? now : el("span", {}, now, " → ", owner(row.next, data));
}

function owner(number, data) {
  if (number === null) return el("span", { class: "sub" }, "no member");
  const swatch = el("i", { class: "swatch" });
  swatch.style.background = ownerColor(number);
  return el("span", { class: "owner" }, swatch, data.ownerNames[number]);
}
