import { el, Table } from "./dom.js";
import { count, plural } from "./format.js";

export const tab = "topics";
export const title = () => "Topics";
export const url = () => "/api/topics";

export function mount(main) {
  const filter = el("input", { type: "search", placeholder: "Filter topics and groups", "aria-label": "Filter" });
  const total = el("span", { class: "sub" });
  const table = new Table(COLUMNS, { key: (row) => row.topic, label: "Topics" });
  const card = el("div", { class: "card scroll", hidden: true }, table.node);
  const empty = el("div", { class: "card empty", hidden: true });
  main.append(el("div", { class: "bar" }, el("h1", {}, "Topics"), total, filter), card, empty);
  let rows = [];
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    const found = rows.filter((row) => `${row.topic} ${row.groups.join(" ")}`.toLowerCase().includes(wanted));
    table.update(found);
    card.hidden = !found.length;
    empty.hidden = found.length > 0;
    empty.replaceChildren(el("b", {}, rows.length ? "No topic matches" : "No topic yet"));
  };
  filter.addEventListener("input", show);
  return {
    update(data) {
      rows = data.topics;
      total.textContent = data.at ? plural(rows.length, "topic") : "";
      if (data.at) show(); // before the first reading nothing is known, not even that there is none
    },
  };
}

const groupLinks = (groups) => {
  const links = groups.slice(0, 4).map((name) => el("a", { href: `#/group/${encodeURIComponent(name)}` }, name));
  const parts = links.flatMap((link, number) => (number ? [", ", link] : [link]));
  return el("span", {}, ...parts, groups.length > 4 ? ` and ${groups.length - 4} more` : "");
};

const COLUMNS = [
  { title: "Topic", kind: "name", cell: (row) => ({ key: `${row.internal} ${row.leaderless} ${row.groups}`, node: () => name(row) }) },
  { title: "Partitions", kind: "num", cell: (row) => count(row.partitions_count) },
  { title: "Replicas", kind: "num wide", cell: (row) => (row.replication ? count(row.replication) : "–") },
  { title: "In the log", kind: "num", cell: (row) => count(row.in_log) },
  { title: "Groups", kind: "wide", cell: (row) => ({ key: row.groups.join("\n"), node: () => groupLinks(row.groups) }) },
];

function name(row) {
  return el(
    "div",
    {},
    el("a", { href: `#/topic/${encodeURIComponent(row.topic)}` }, row.topic),
    row.internal ? el("span", { class: "sub" }, "internal") : null,
    row.leaderless ? el("span", { class: "sub rising" }, `${plural(row.leaderless, "partition")} without a leader`) : null,
    row.groups.length ? el("span", { class: "sub narrow" }, row.groups.join(", ")) : null,
  );
}
