// Everything from the brokers becomes text, never markup: group ids and client ids are chosen by whoever connects.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const probe = el("span", { hidden: true });

/** The value of a colour of style.css in the theme that is shown. */
export function color(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Pixels of a text in a canvas: the page's own size grows with the screen. */
export const textSize = (part) => Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * part);

const OWNERS = ["#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#38b2ac", "#ff8ab7", "#9c6b4e", "#97bbf5", "#8a9a5b"];
export const ownerColor = (number) => OWNERS[number % OWNERS.length];

/**
 * A table that changes only the cells that differ, so that 500 rows cost little at each reading.
 * A column is {title, kind, cell}: cell(row) returns text, or {key, node()} for anything else.
 */
export class Table {
  constructor(columns, { key, label }) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.body = el("tbody");
    const heads = columns.map((c) => el("th", { class: c.kind ?? "", scope: "col" }, c.title));
    this.node = el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, ...heads)), this.body);
  }

  update(rows) {
    const seen = new Set();
    let before = null;
    for (const row of rows) {
      const id = this.key(row);
      seen.add(id);
      let known = this.rows.get(id);
      if (!known) {
        const cells = this.columns.map((c) => el("td", { class: c.kind ?? "" }));
        known = { node: el("tr", {}, ...cells), cells, shown: cells.map(() => null) };
        this.rows.set(id, known);
      }
      this.columns.forEach((column, number) => this.fill(known, number, column.cell(row)));
      const next = before ? before.nextSibling : this.body.firstChild;
      if (next !== known.node) this.body.insertBefore(known.node, next);
      before = known.node;
    }
    for (const [id, known] of this.rows) {
      if (!seen.has(id)) {
        known.node.remove();
        this.rows.delete(id);
      }
    }
  }

  fill(known, number, value) {
    const key = typeof value === "object" && value !== null ? value.key : value;
    if (known.shown[number] === key) return;
    known.shown[number] = key;
    if (typeof value === "object" && value !== null) known.cells[number].replaceChildren(value.node());
    else known.cells[number].textContent = value;
  }
}
