import { color, el, Table } from "./dom.js";
import { arrow, count, plural, rate, span, stateClass, suffix } from "./format.js";

export const tab = "groups";
export const title = () => "Groups";
export const url = () => "/api/overview";

const link = (name) => `#/group/${encodeURIComponent(name)}`;

export function mount(main) {
  const filter = el("input", { type: "search", placeholder: "Filter groups and topics", "aria-label": "Filter" });
  const total = el("span", { class: "sub" });
  const state = { unit: "" };
  const table = new Table(columns(state), { key: (row) => row.group, label: "Consumer groups" });
  const card = el("div", { class: "card scroll", hidden: true }, table.node);
  const empty = el("div", { class: "card empty", hidden: true });
  main.append(el("div", { class: "bar" }, el("h1", {}, "Groups"), total, filter), card, empty);
  let rows = [];
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    const found = rows.filter((row) => `${row.group} ${row.topics.join(" ")}`.toLowerCase().includes(wanted));
    table.update(found);
    card.hidden = !found.length;
    empty.hidden = found.length > 0;
    empty.replaceChildren(...(rows.length ? nothing("No group matches", "Change the filter.") : noGroup()));
  };
  filter.addEventListener("input", show);
  return {
    update(data) {
      rows = data.groups;
      state.unit = data.unit;
      const lag = rows.reduce((sum, row) => sum + (row.lag ?? 0), 0);
      total.textContent = data.at && rows.length ? `${plural(rows.length, "group")}, lag ${count(lag)}${suffix(data.unit)}` : "";
      if (data.at) show(); // before the first reading nothing is known, not even that there is none
    },
    draw: () => { table.rows.clear(); table.body.replaceChildren(); show(); },
  };
}

const nothing = (head, text) => [el("b", {}, head), text];
const noGroup = () => [
  el("b", {}, "No consumer group yet"),
  "A group appears when its first member joins. Old consumers keep theirs in ZooKeeper: start the page with ",
  el("code", {}, "--zookeeper"),
  ".",
];

function columns(state) {
  return [
    { title: "Group", kind: "name", cell: (row) => ({ key: `${row.state} ${row.members} ${row.topics}`, node: () => name(row) }) },
    { title: "State", kind: "wide", cell: (row) => ({ key: row.state, node: () => badge(row.state) }) },
    { title: "Members", kind: "num wide", cell: (row) => count(row.members) },
    { title: "Partitions", kind: "num wide", cell: (row) => count(row.partitions_count) },
    { title: "Written", kind: "num wide", cell: (row) => rate(row.written_per_s, state.unit) },
    { title: "Committed", kind: "num wide", cell: (row) => rate(row.committed_per_s, state.unit) },
    { title: "Lag", kind: "num", cell: (row) => count(row.lag) + (row.lag === null ? "" : suffix(state.unit)) },
    { title: "Trend", kind: "num", cell: (row) => ({ key: `${row.trend} ${row.seconds_left}`, node: () => trend(row) }) },
    { title: "", kind: "num", cell: (row) => ({ key: row.curve.join(), node: () => curve(row.curve) }) },
  ];
}

const STUCK_S = 1800; // as the alert rule StreamgroupBatchStuck has it

/** The cell with the age of a member's batch in flight. Members of other machines have none, old releases no age. */
export function batchInFlight(local) {
  if (!local) return "–";
  if (local.in_flight_s === null) return local.idle ? "none" : "yes";
  const text = span(local.in_flight_s);
  if (local.in_flight_s <= STUCK_S) return text;
  return { key: text, node: () => el("span", { class: "badge bad", title: "Does the sink hang?" }, text) };
}

export const badge = (state) => el("span", { class: `badge ${stateClass(state)}` }, state);

function name(row) {
  const topics = row.topics.slice(0, 3).join(", ") + (row.topics.length > 3 ? ` and ${row.topics.length - 3} more` : "");
  return el(
    "div",
    {},
    el("a", { href: link(row.group) }, row.group || "(empty group id)"),
    el("span", { class: "sub" }, topics || "no topic"),
    el("span", { class: "sub narrow" }, badge(row.state), ` ${plural(row.members, "member")}`),
  );
}

export function trend(row) {
  const text = row.trend === "unknown" ? "–" : `${arrow(row.trend)} ${row.trend}`;
  const node = el("span", { class: row.trend }, text);
  if (row.seconds_left === null) return node;
  return el("div", {}, node, el("span", { class: "sub" }, `${span(row.seconds_left)} left`));
}

/** The lag of the last samples. It begins at 0, so that a small wobble of a large lag does not look large. */
function curve(lags) {
  const canvas = el("canvas", { class: "curve", width: 256, height: 54, role: "img", "aria-label": "lag over time" });
  const known = lags.filter((lag) => lag !== null);
  if (known.length < 2) return canvas;
  const most = Math.max(...known, 1);
  const context = canvas.getContext("2d");
  context.strokeStyle = context.fillStyle = color("lag");
  context.lineWidth = 3;
  context.lineJoin = "round";
  const x = (number) => 4 + (number * 248) / (lags.length - 1);
  const y = (lag) => 50 - (lag * 44) / most;
  context.beginPath();
  let open = false;
  lags.forEach((lag, number) => {
    if (lag !== null) context[open ? "lineTo" : "moveTo"](x(number), y(lag));
    open = lag !== null;
  });
  context.stroke();
  context.globalAlpha = 0.15;
  context.lineTo(x(lags.length - 1), 54);
  context.lineTo(x(lags.findIndex((lag) => lag !== null)), 54);
  context.fill();
  return canvas;
}
