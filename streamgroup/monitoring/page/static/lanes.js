import { color, el, ownerColor, textSize } from "./dom.js";
import { clock, count } from "./format.js";

const MARK_COLORS = {
  rebalance: "warn", join: "good", leave: "dim", drain: "link", fence: "bad", replay: "written", skip: "bad", repeat: "bad", data_loss: "bad",
  failure: "bad",
};
export const markColor = (kind) => color(MARK_COLORS[kind] ?? "dim");

/**
 * A lane for each partition over time: by member (`owners`), or by lag (`heat`). Both have the same geometry, so that
 * a rebalance above stands over the lag that it has caused.
 */
export class Lanes {
  constructor(kind, label) {
    this.kind = kind;
    this.canvas = el("canvas", { role: "img", "aria-label": label });
    this.tip = el("div", { class: "tip", hidden: true });
    this.node = el("div", { class: "lanes" }, this.canvas, this.tip);
    this.data = null;
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  update(data) {
    this.data = data;
    this.draw();
  }

  get lanes() {
    return this.data.partitions.length;
  }

  draw() {
    if (!this.data?.times.length || !this.node.clientWidth) return;
    const width = this.node.clientWidth;
    const text = textSize(0.75);
    this.band = Math.round(text * 1.5);
    const axis = Math.round(text * 1.7);
    this.lane = Math.max(1, Math.min(textSize(1.4), Math.floor(textSize(32) / Math.max(1, this.lanes))));
    const height = this.band + this.lane * this.lanes + axis;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = `${text}px system-ui, sans-serif`;
    this.names = this.lane >= text ? this.data.partitions.map((row) => fit(context, `${row.topic}-${row.name}`, width / 3)) : [];
    this.left = Math.max(6, ...this.names.map((name) => context.measureText(name).width + 8));
    const { times } = this.data;
    this.from = times[0];
    this.until = Math.max(times[times.length - 1], this.from + 1);
    this.width = width - this.left - 6;
    this.background(context, height - axis / 2 + 1);
    if (this.kind === "owners") this.drawOwners(context);
    else this.drawHeat(context);
    this.drawMarks(context);
  }

  x(at) {
    return this.left + ((at - this.from) / (this.until - this.from)) * this.width;
  }

  background(context, axis) {
    context.textBaseline = "middle";
    const dim = color("dim");
    context.fillStyle = color("grid");
    context.fillRect(this.left, this.band, this.width, this.lane * this.lanes);
    context.fillStyle = dim;
    this.names.forEach((name, number) => context.fillText(name, 0, this.band + (number + 0.5) * this.lane));
    const ticks = Math.max(2, Math.floor(this.width / textSize(8)));
    for (let tick = 0; tick <= ticks; tick += 1) {
      const at = this.from + ((this.until - this.from) * tick) / ticks;
      context.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
      context.fillText(clock(at), this.x(at), axis);
    }
    context.textAlign = "left";
  }

  drawOwners(context) {
    const gap = this.lane > 4 ? 1 : 0;
    this.data.spans.forEach((spans, number) => {
      const y = this.band + number * this.lane;
      for (const [start, end, owner] of spans) {
        context.fillStyle = ownerColor(owner);
        context.fillRect(this.x(start), y, Math.max(1, this.x(end) - this.x(start)), this.lane - gap);
      }
    });
  }

  /** One pixel for each sample of each partition, drawn as one picture: 500 partitions take a few milliseconds. */
  drawHeat(context) {
    if (!this.lanes) return; // a picture has at least one row
    const { heat, times } = this.data;
    const [hot, cold] = [channels(color("lag")), channels(color("grid"))];
    const image = new ImageData(times.length, this.lanes);
    heat.forEach((lags, number) => {
      lags.forEach((lag, column) => {
        if (lag === null) return;
        const part = this.data.mostLag > 0 ? Math.sqrt(lag / this.data.mostLag) : 0;
        const at = (number * times.length + column) * 4;
        for (let channel = 0; channel < 3; channel += 1) {
          image.data[at + channel] = cold[channel] + (hot[channel] - cold[channel]) * part;
        }
        image.data[at + 3] = 255;
      });
    });
    const small = new OffscreenCanvas(image.width, image.height);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, this.left, this.band, this.width, this.lane * this.lanes);
    if (this.lane > 4) {
      context.fillStyle = color("card");
      for (let number = 1; number < this.lanes; number += 1) {
        context.fillRect(this.left, this.band + number * this.lane - 1, this.width, 1);
      }
    }
  }

  drawMarks(context) {
    for (const mark of this.data.marks) {
      if (mark.at < this.from || mark.at > this.until) continue;
      const x = this.x(mark.at);
      context.fillStyle = markColor(mark.kind);
      context.globalAlpha = 0.75;
      context.fillRect(x - 0.5, this.band - 3, 1, this.lane * this.lanes + 3);
      context.globalAlpha = 1;
      context.beginPath();
      context.arc(x, this.band / 2, this.band / 4, 0, 7);
      context.fill();
    }
  }

  point(event) {
    if (!this.lane) return;
    const { offsetX: x, offsetY: y } = event;
    const at = this.from + ((x - this.left) / this.width) * (this.until - this.from);
    const near = this.data.marks.filter((mark) => Math.abs(this.x(mark.at) - x) < 5);
    const number = Math.floor((y - this.band) / this.lane);
    const lines = near.slice(0, 6).map((mark) => `${clock(mark.at)}  ${mark.kind}: ${mark.text}`);
    const row = this.data.partitions[number];
    if (row && y >= this.band && x >= this.left) lines.unshift(`${row.topic}-${row.name}  ${clock(at)}`, ...this.about(number, at));
    this.tip.hidden = !lines.length;
    if (!lines.length) return;
    this.tip.textContent = lines.join("\n");
    const right = x > this.node.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${x + 14}px`;
    this.tip.style.right = right ? `${this.node.clientWidth - x + 14}px` : "auto";
    this.tip.style.top = `${y + 12}px`;
  }

  about(number, at) {
    const held = this.data.spans[number]?.find(([start, end]) => start <= at && at <= end);
    const { times } = this.data;
    let column = times.findIndex((time) => time >= at);
    if (column < 0) column = times.length - 1;
    const lag = this.data.heat[number]?.[column];
    return [held ? this.data.ownerNames[held[2]] : "no member", `lag ${count(lag)}`];
  }
}

/** The text, or as much of its end as there is room for: the partition's number is last. */
function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 4 && context.measureText(`…${cut}`).width > width) cut = cut.slice(1);
  return `…${cut}`;
}

const channels = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
