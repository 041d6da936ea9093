import { el, Table } from "./dom.js";
import { count, dayAndTime, plural } from "./format.js";
import { batchInFlight } from "./groups.js";

export const tab = "cluster";
export const title = () => "Cluster";
export const url = () => "/api/cluster";

export function mount(main) {
  const tiles = el("div", { class: "tiles" });
  const about = el("span", { class: "sub" });
  const brokers = new Table(BROKERS, { key: (row) => row.id, label: "Brokers" });
  const members = new Table(MEMBERS, { key: (row) => row.run, label: "Members on this machine" });
  const errors = el("ol", { class: "events" });
  const degraded = el("p", {});
  const noMember = el("p", { class: "empty" }, "No query of this user runs on this machine.");
  main.append(
    el("div", { class: "bar" }, el("h1", {}, "Cluster"), about),
    tiles,
    el(
      "div",
      { class: "grid" },
      el("section", {}, el("h2", {}, "Brokers"), el("div", { class: "card scroll" }, brokers.node)),
      el("section", {}, el("h2", {}, "Errors and notes"), el("div", { class: "card" }, errors)),
      el("section", { class: "full" }, el("h2", {}, "Members on this machine"), el("div", { class: "card scroll" }, members.node, noMember)),
      el("section", { class: "full" }, el("h2", {}, "Partitions without a leader or with replicas behind"), el("div", { class: "card" }, degraded)),
    ),
  );
  return {
    update(data) {
      const tile = (value, text) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, text));
      about.textContent = [data.cluster_id && `id ${data.cluster_id}`, data.dialect === "0.7" ? "Kafka 0.7" : ""].filter(Boolean).join(", ");
      tiles.replaceChildren(
        tile(count(data.brokers.length), "brokers"),
        tile(count(data.topics_count), "topics"),
        tile(count(data.partitions_count), "partitions"),
        tile(count(data.groups_count), "groups"),
        tile(count(data.degraded_count), "partitions degraded"),
      );
      brokers.update(data.brokers);
      members.update(data.members);
      members.node.hidden = !data.members.length;
      noMember.hidden = data.members.length > 0;
      const more = data.degraded_count - (data.degraded?.length ?? 0);
      degraded.textContent = data.degraded_count ? data.degraded.join(", ") + (more ? ` and ${more} more` : "") : "None.";
      showErrors(errors, data.errors);
    },
  };
}

function showErrors(list, errors) {
  const items = errors.map((error) =>
    el("li", {}, el("time", {}, dayAndTime(error.at)), el("span", { class: "badge bad" }, error.count > 1 ? `${error.count} times` : "once"), el("span", {}, error.text)),
  );
  list.replaceChildren(...(items.length ? items : [el("li", { class: "sub" }, "None since this page began to read.")]));
}

const BROKERS = [
  { title: "Broker", kind: "num", cell: (row) => String(row.id) },
  { title: "Address", kind: "", cell: (row) => row.address },
  { title: "Rack", kind: "wide", cell: (row) => row.rack ?? "–" },
  { title: "Leads", kind: "num", cell: (row) => count(row.leads) },
  { title: "Replicas", kind: "num wide", cell: (row) => count(row.replicas) },
  { title: "", kind: "", cell: (row) => (row.controller ? "controller" : "") },
];
const MEMBERS = [
  { title: "Member", kind: "name", cell: (row) => row.name || row.query || row.run },
  { title: "Group", kind: "", cell: (row) => ({ key: row.group, node: () => (row.group ? el("a", { href: `#/group/${encodeURIComponent(row.group)}` }, row.group) : el("span", {}, "none")) }) },
  { title: "State", kind: "", cell: (row) => `${row.state}${row.draining ? ", draining" : ""}` },
  { title: "Batch in flight", kind: "", cell: batchInFlight },
  { title: "Reads", kind: "wide", cell: (row) => row.source },
  { title: "Events", kind: "wide", cell: (row) => plural(Object.values(row.events).reduce((sum, number) => sum + number, 0), "event") },
];
