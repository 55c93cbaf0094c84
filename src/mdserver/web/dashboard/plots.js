/** Plots on a canvas: lines over time, and bars over windows of time. */

const PAD = { left: 52, right: 8, top: 8, bottom: 20 };
const LINES = 4; // horizontal ones, beside that of zero
const DAY_MS = 86_400_000;

const style = (canvas, name) => getComputedStyle(canvas).getPropertyValue(name).trim();

/** Return a number with at most three digits that count and a letter for its magnitude. */
export function short(value) {
  const size = Math.abs(value);
  for (const [letter, unit] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))}${letter}`;
  }
  return String(Number(value.toPrecision(3)));
}

/** Return the smallest round number that is not below a value. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * unit >= value) * unit;
}

function timeOf(moment, span) {
  const options = span > DAY_MS ? { dateStyle: "short" } : { timeStyle: "medium" };
  return new Intl.DateTimeFormat(undefined, options).format(moment);
}

/** What plots have in common: the canvas, its size and colours, and where one points at. */
class Plot {
  constructor(canvas, series, unit) {
    this.canvas = canvas;
    this.series = series;
    this.unit = unit;
    this.pointed = null; // index of what is pointed at
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    canvas.addEventListener("pointermove", (event) => this.point(this.indexAt(event.offsetX)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.length) return;
    event.preventDefault();
    const from = this.pointed ?? (step < 0 ? this.length : -1);
    this.point(Math.max(0, Math.min(this.length - 1, from + step)));
  }

  point(index) {
    this.pointed = index;
    this.draw();
  }

  /** Draw everything; a canvas that is not shown has no size, and is left alone. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.width = width - PAD.left - PAD.right;
    this.height = height - PAD.top - PAD.bottom;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `12px ${style(this.canvas, "font-family")}`;
    this.top = ceiling(this.largest());
    this.grid(pen);
    this.content(pen);
    this.canvas.setAttribute("aria-label", this.told());
    if (this.pointed !== null && this.pointed < this.length) this.note(pen);
  }

  y(value) {
    return PAD.top + this.height * (1 - value / this.top);
  }

  grid(pen) {
    pen.strokeStyle = style(this.canvas, "--line");
    pen.fillStyle = style(this.canvas, "--quiet");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (let line = 0; line <= LINES; line++) {
      const value = (this.top * line) / LINES;
      const y = Math.round(this.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(PAD.left, y);
      pen.lineTo(PAD.left + this.width, y);
      pen.stroke();
      pen.fillText(short(value), PAD.left - 6, y);
    }
  }

  /** Write the values that are pointed at beside a vertical line. */
  note(pen) {
    const x = this.x(this.pointed);
    pen.strokeStyle = style(this.canvas, "--text");
    pen.beginPath();
    pen.moveTo(x, PAD.top);
    pen.lineTo(x, PAD.top + this.height);
    pen.stroke();
    const rows = this.rowsAt(this.pointed);
    const width = Math.max(...rows.map((row) => pen.measureText(row).width)) + 12;
    const left = x + width + 8 > PAD.left + this.width ? x - width - 4 : x + 4;
    pen.fillStyle = style(this.canvas, "--ground");
    pen.fillRect(left, PAD.top, width, rows.length * 16 + 6);
    pen.strokeRect(left, PAD.top, width, rows.length * 16 + 6);
    pen.fillStyle = style(this.canvas, "--text");
    pen.textAlign = "left";
    rows.forEach((row, line) => pen.fillText(row, left + 6, PAD.top + 11 + 16 * line));
  }

  /** Return what the plot shows, for those who do not see it. */
  told() {
    if (!this.length) return "Nothing was measured yet";
    return this.rowsAt(this.pointed ?? this.length - 1).join(", ");
  }
}

/** Lines over time. `points` are `{ time, values }`, oldest first; `spanMs` is what is shown. */
export class TimePlot extends Plot {
  constructor(canvas, series, unit, spanMs) {
    super(canvas, series, unit);
    this.points = [];
    this.spanMs = spanMs;
  }

  get length() {
    return this.points.length;
  }

  /** Add a point, forget those that are too old, and draw. */
  add(time, values) {
    this.points.push({ time, values });
    while (this.points.length > 2 && this.points[1].time < time - this.spanMs) this.points.shift();
    this.draw();
  }

  largest() {
    let most = 0;
    for (const { values } of this.points) for (const value of values) most = Math.max(most, value);
    return most;
  }

  get end() {
    return this.points.at(-1)?.time ?? 0;
  }

  x(index) {
    const age = this.end - this.points[index].time;
    return PAD.left + this.width * Math.max(0, 1 - age / this.spanMs);
  }

  indexAt(x) {
    if (!this.length) return null;
    const time = this.end - this.spanMs * (1 - (x - PAD.left) / this.width);
    let nearest = 0;
    this.points.forEach((point, index) => {
      const is = Math.abs(point.time - time) < Math.abs(this.points[nearest].time - time);
      if (is) nearest = index;
    });
    return nearest;
  }

  rowsAt(index) {
    const { time, values } = this.points[index];
    const rows = this.series.map(({ label }, at) => `${label} ${short(values[at])} ${this.unit}`);
    return [timeOf(time, this.spanMs), ...rows];
  }

  content(pen) {
    this.times(pen);
    this.series.forEach(({ colour }, at) => {
      pen.strokeStyle = style(this.canvas, colour);
      pen.lineWidth = 2;
      pen.beginPath();
      this.points.forEach(({ values }, index) => {
        if (index) pen.lineTo(this.x(index), this.y(values[at]));
        else pen.moveTo(this.x(index), this.y(values[at]));
      });
      pen.stroke();
      pen.lineWidth = 1;
    });
  }

  times(pen) {
    pen.textAlign = "left";
    pen.fillText(`${Math.round(this.spanMs / 60_000)} min ago`, PAD.left, PAD.top + this.height + 12);
    pen.textAlign = "right";
    pen.fillText("now", PAD.left + this.width, PAD.top + this.height + 12);
  }
}

const FIGURES = { // id of the canvas -> labels of the two lines, and their unit
  messages: ["in", "out", "a second"],
  bytes: ["in", "out", "B a second"],
  connected: ["connected", "slow", ""],
  latency: ["to commit", "to socket", "ms"],
};

/** The plots with which a page begins: messages, bytes, sessions and latencies of five minutes. */
export class Figures {
  static SHOWN_MS = 5 * 60_000;

  constructor(find) {
    for (const [name, [first, second, unit]] of Object.entries(FIGURES)) {
      const series = [
        { label: first, colour: "--first" },
        { label: second, colour: "--second" },
      ];
      this[name] = new TimePlot(find(name), series, unit, Figures.SHOWN_MS);
    }
  }

  /** Add a point to each. `rates` are a second, `latencies` those of 99 of 100, in seconds. */
  add(time, rates, { sessions, slow_consumers: slow }, latencies) {
    this.messages.add(time, [rates.messages_in, rates.messages_out]);
    this.bytes.add(time, [rates.bytes_in, rates.bytes_out]);
    this.connected.add(time, [sessions, slow]);
    this.latency.add(time, latencies.map((seconds) => 1000 * seconds));
  }
}

/** Bars over windows of time. `bars` are `{ label, values, note }`, oldest first. */
export class BarPlot extends Plot {
  bars = [];

  get length() {
    return this.bars.length;
  }

  show(bars) {
    this.bars = bars;
    this.draw();
  }

  largest() {
    return Math.max(0, ...this.bars.flatMap(({ values }) => values));
  }

  x(index) {
    return PAD.left + (this.width * (index + 0.5)) / this.length;
  }

  indexAt(x) {
    const index = Math.floor(((x - PAD.left) / this.width) * this.length);
    return this.length ? Math.max(0, Math.min(this.length - 1, index)) : null;
  }

  rowsAt(index) {
    const { note, values } = this.bars[index];
    return [note, ...this.series.map(({ label }, at) => `${label} ${short(values[at])} ${this.unit}`)];
  }

  content(pen) {
    const room = this.width / Math.max(1, this.length);
    const wide = Math.min(40, room * 0.7);
    this.bars.forEach(({ label, values }, index) => {
      const x = this.x(index);
      this.series.forEach(({ colour }, at) => {
        // A larger value stands behind the smaller ones, and is narrower.
        const across = wide * (at ? 1 : 0.4);
        pen.fillStyle = style(this.canvas, colour);
        pen.fillRect(x - across / 2, this.y(values[at]), across, this.y(0) - this.y(values[at]));
      });
      pen.fillStyle = style(this.canvas, "--quiet");
      pen.textAlign = "center";
      if (room > 34 || index % 3 === 0) pen.fillText(label, x, PAD.top + this.height + 12);
    });
  }
}
