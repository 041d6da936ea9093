import { el, Table } from "./dom.js";
import { count, dayAndTime, plural } from "./format.js";

export const tab = "topics";
export const title = (name) => `Topic ${name}`;
export const url = (name) => `/api/topic?${new URLSearchParams({ name })}`;

export function mount(main) {
  const head = el("div", { class: "bar" });
  const tiles = el("div", { class: "tiles" });
  const box = el("div", { class: "card scroll" });
  main.append(head, tiles, box);
  let table = null;
  let groups = null;
  return {
    update(data) {
      head.replaceChildren(
        el("a", { class: "crumb", href: "#/topics" }, "← Topics"),
        el("h1", {}, data.topic),
        ...(data.internal ? [el("span", { class: "badge" }, "internal")] : []),
        el("span", { class: "sub" }, data.topic_id ? `id ${data.topic_id}` : ""),
      );
      const tile = (value, text) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, text));
      tiles.replaceChildren(
        tile(count(data.in_log), data.unit === "bytes" ? "bytes in the log" : "offsets in the log"),
        tile(count(data.partitions_count), "partitions"),
        tile(data.replication ? count(data.replication) : "–", "replicas of each"),
        tile(count(data.leaderless), "without a leader"),
        tile(count(data.groups.length), "groups"),
      );
      if (groups !== data.groups.join("\n")) {
        groups = data.groups.join("\n");
        table = new Table(columns(data.groups), { key: (row) => row.id, label: "Partitions" });
        box.replaceChildren(table.node);
      }
      table.update(data.rows);
    },
  };
}

const MOST_GROUPS = 6;

function columns(groups) {
  const lags = groups.slice(0, MOST_GROUPS).map((group) => ({ title: `Lag of ${group}`, kind: "num free", cell: (row) => count(row.lags[group]) }));
  return [
    { title: "Partition", kind: "num", cell: (row) => ({ key: `${row.name} ${heldKey(row)}`, node: () => partitionName(row) }) },
    { title: "Leader", kind: "num", cell: (row) => (row.leader === null ? "none" : String(row.leader)) },
    { title: "Replicas", kind: "wide", cell: (row) => row.replicas.join(", ") || "–" },
    { title: "In sync", kind: "wide", cell: (row) => ({ key: row.in_sync.join(), node: () => inSync(row) }) },
    { title: "Log start", kind: "num wide", cell: (row) => count(row.start) },
    { title: "Log end", kind: "num", cell: (row) => count(row.end) },
    ...lags,
  ];
}

function partitionName(row) {
  const mark = heldMark(row);
  return mark ? el("span", {}, mark, ` ${row.name}`) : el("span", {}, String(row.name));
}

export const heldKey = (row) => (row.held_up ? row.held_up.since : "");

/** The mark of a partition in which an open transaction holds up consumers of `read_committed`; null without one. */
export function heldMark(row) {
  if (!row.held_up) return null;
  const { offset, since, command } = row.held_up;
  const text = `Consumers of read_committed wait at offset ${offset}, for an open transaction. ${command} shows it`;
  return el("span", { class: "badge warn", title: text }, `held up since ${dayAndTime(since)}`);
}

function inSync(row) {
  const missing = row.replicas.length - row.in_sync.length;
  const text = row.in_sync.join(", ") || "–";
  return el("span", { class: missing > 0 ? "rising" : "" }, missing > 0 ? `${text} (${plural(missing, "replica")} behind)` : text);
}
