import uPlot from "./vendor/uPlot.esm.js";
import { color, el } from "./dom.js";
import { clock, compact } from "./format.js";

/** A chart over time that keeps its width. `series(colour)` returns uPlot's series, without that of the time. */
export class Chart {
  constructor(series, { height = 220, value = compact, bars = false } = {}) {
    this.series = series;
    this.options = { height, value, bars };
    this.node = el("div", { class: "chart" });
    this.data = null;
    this.shape = "";
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.node);
  }

  size() {
    return { width: Math.max(200, this.node.clientWidth), height: this.options.height };
  }

  /** `shape` names the series: another one makes the chart anew. */
  update(data, shape = "") {
    this.data = data;
    if (this.plot && shape === this.shape) this.plot.setData(data);
    else {
      this.shape = shape;
      this.draw();
    }
  }

  draw() {
    if (!this.data) return;
    this.plot?.destroy();
    const axis = { stroke: color("dim"), grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
    const { value } = this.options;
    this.plot = new uPlot(
      {
        ...this.size(),
        series: [{ value: (_, at) => (at === null ? "–" : clock(at)) }, ...this.series()],
        axes: [
          { ...axis, space: 70, values: (_, ticks, __, ___, step) => ticks.map((at) => clock(at, step < 60)) },
          { ...axis, size: 54, values: (_, ticks) => ticks.map((tick) => value(tick)) },
        ],
        scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), Math.max(most ?? 0, 1) * 1.06] } },
        cursor: { drag: { x: true, y: false } },
        legend: { live: true },
      },
      this.data,
      this.node,
    );
  }
}

export const line = (label, stroke, value, extra = {}) => ({
  label,
  stroke,
  width: 2,
  points: { show: false },
  spanGaps: false,
  value: (_, at) => value(at),
  ...extra,
});

export const barPaths = () => uPlot.paths.bars({ size: [0.8, 40], align: 1 });
