import uPlot from "./vendor/uPlot.esm.js";
import { color, el, textSize } from "./dom.js";
import { clock, compact } from "./format.js";

/** A chart over time that keeps its width. `series(colour)` returns uPlot's series, without that of the time. */
export class Chart {
  constructor(series, { height = 15, value = compact, each = false } = {}) {
    this.series = series;
    this.options = { height, value, each };
    this.node = el("div", { class: "chart" });
    this.data = null;
    this.shape = "";
    this.plot = null;
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.node);
  }

  size() {
    return { width: Math.max(200, this.node.clientWidth), height: textSize(this.options.height) };
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
    const font = `${textSize(0.8)}px system-ui, sans-serif`;
    const axis = { stroke: color("dim"), grid: { stroke: color("grid"), width: 1 }, ticks: { show: false }, font };
    const { value, each } = this.options;
    const figures = { ...axis, size: textSize(4), values: (_, ticks) => ticks.map((tick) => value(tick)) };
    const range = (_, least, most) => [Math.min(0, least ?? 0), Math.max(most ?? 0, 1) * 1.06];
    this.plot = new uPlot(
      {
        ...this.size(),
        series: [{ value: (plot, at) => clock(at ?? newest(plot.data[0]) ?? 0) }, ...this.series()],
        axes: [
          { ...axis, size: textSize(1.8), space: textSize(5), values: (_, ticks, __, ___, step) => ticks.map((at) => clock(at, step < 60)) },
          figures,
          ...(each ? [{ ...figures, scale: "each", side: 1, grid: { show: false } }] : []),
        ],
        scales: { y: { range }, each: { range } },
        cursor: { drag: { x: true, y: false } },
        legend: { live: true },
      },
      this.data,
      this.node,
    );
  }
}

/** Beside the pointer the legend has the figures at its time, else the newest. */
export const newest = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

export const line = (label, stroke, value, extra = {}) => ({
  label,
  stroke,
  width: 2,
  points: { show: false },
  spanGaps: false,
  value: (plot, shown, series) => value(shown ?? newest(plot.data[series])),
  ...extra,
});

export const barPaths = () => uPlot.paths.bars({ size: [0.8, 40], align: 1 });
