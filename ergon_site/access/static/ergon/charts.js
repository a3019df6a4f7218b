// Draws every [data-charts] with uPlot, from the JSON at its address. What is drawn outlives refreshes of the page: it is
// put into the new element, and asks for new numbers by itself.
const EVERY_MS = 10000;
const RANGES = { "15min": "15 min", hour: "Hour", day: "Day", week: "Week" };
const MARKS = { policy: "P", deploy: "D", pause: "‖", breaker: "!" };
const SECONDS = [
  ...[1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30],
  ...[60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800],
];
const COUNTS = [1, 10, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const LOG_SECONDS = [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000];
const GAPS = {
  joined: "Lines join steps without values.",
  marked: "Shaded: no samples.",
};
const HEIGHT = 180;
const NEAR = 12; // pixels from a mark within which its text is shown
const boxes = new Map();

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function duration(seconds) {
  if (seconds === 0) return "0 s";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (seconds >= size * (size === 1 ? 1 : 2)) return `${digits.format(seconds / size)} ${unit}`;
  }
  return `${digits.format(seconds * 1000)} ms`;
}

const two = (number) => String(number).padStart(2, "0");
const at = (seconds) => new Date(seconds * 1000);
const clock = (time) => `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}`;
const day = (time) => `${time.toLocaleString("en", { month: "short", timeZone: "UTC" })} ${time.getUTCDate()}`;
const tick = (seconds) => (seconds % 86400 ? clock(at(seconds)) : day(at(seconds)));
const exact = (seconds) => `${day(at(seconds))}, ${clock(at(seconds))} UTC`;
const told = (unit, value) => (value == null ? "–" : unit === "seconds" ? duration(value) : whole.format(value));

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// One box for each address: its charts, the range that they show, and what somebody has chosen.
class Box {
  constructor({ charts, table }) {
    this.address = charts;
    this.table = table;
    this.key = `charts ${charts}`;
    this.scales = {};
    this.plots = [];
    const asked = new URLSearchParams(location.search);
    this.range = asked.get("range") in RANGES ? asked.get("range") : "hour";
    this.zoom = asked.has("from") && asked.has("to") ? { from: asked.get("from"), to: asked.get("to") } : null;
    this.body = element("div", { className: "ergon-plots-body" });
    this.bar = element("div", { className: "ergon-plots-bar" });
    this.note = element("p", { className: "ergon-hint", role: "status" });
    this.figures = element("div", { className: "ergon-charts" });
    this.events = element("details", { className: "ergon-fold" });
    this.twin = element("details", { className: "ergon-fold" });
    this.twin.addEventListener("toggle", () => this.fillTable());
    this.body.append(this.bar, this.note, this.figures, this.events, this.twin);
    this.drawBar();
    this.load();
  }

  get query() {
    return new URLSearchParams(this.zoom ?? { range: this.range }).toString();
  }

  drawBar() {
    const buttons = Object.entries(RANGES).map(([name, text]) => {
      const button = element("button", { type: "button", textContent: text });
      button.dataset.range = name;
      button.setAttribute("aria-pressed", String(!this.zoom && name === this.range));
      return button;
    });
    const ranges = element("div", { className: "ergon-switch" }, ...buttons);
    ranges.setAttribute("role", "group");
    ranges.setAttribute("aria-label", "Time range");
    const back = element("button", { type: "button", className: "ergon-button", textContent: "Zoom out" });
    back.dataset.zoomOut = "";
    const focused = this.bar.contains(document.activeElement);
    this.bar.replaceChildren(...(this.zoom ? [back] : []), ranges);
    if (focused) (this.bar.querySelector("[aria-pressed=true]") ?? back).focus();
  }

  show(range, zoom = null) {
    this.range = range;
    this.zoom = zoom;
    const asked = new URLSearchParams(location.search);
    for (const name of ["range", "from", "to"]) asked.delete(name);
    for (const [name, value] of new URLSearchParams(this.query)) asked.set(name, value);
    history.replaceState(null, "", `${location.pathname}?${asked}${location.hash}`);
    this.drawBar();
    return this.load();
  }

  async load(headers = {}) {
    const asked = this.query;
    try {
      const answer = await fetch(`${this.address}&${asked}`, { credentials: "same-origin", redirect: "error", headers });
      const data = await answer.json();
      if (asked !== this.query) return; // another range was chosen meanwhile
      if (answer.status === 400) return this.say(data.error);
      if (!answer.ok) throw new Error(answer.status);
      this.say("");
      if (JSON.stringify(data) !== JSON.stringify(this.data)) this.draw(data);
    } catch {
      if (asked === this.query) this.say(this.data ? "No response; the charts may be outdated." : "The charts could not be loaded.");
    }
  }

  say(text) {
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  draw(data) {
    const isSame = this.data?.charts.map((one) => one.title).join() === data.charts.map((one) => one.title).join();
    this.data = data;
    this.times = Array.from({ length: (data.ends - data.begins) / data.step }, (_, place) => data.begins + place * data.step);
    // Decided once for each range: a scale must not change under a reader's eyes.
    if (this.drawn !== this.query) this.spiky = data.charts.map((chart) => chart.is_spiky);
    this.drawn = this.query;
    if (!isSame) {
      for (const plot of this.plots) plot.remove();
      this.plots = data.charts.map((_, place) => new Plot(this, place));
      this.figures.replaceChildren(...this.plots.map((plot) => plot.figure));
    }
    for (const plot of this.plots) plot.draw();
    this.drawEvents();
    this.fillTable();
  }

  redraw() {
    for (const plot of this.plots) plot.draw(true);
  }

  drawEvents() {
    const marks = this.data.marks;
    this.events.hidden = !marks.length;
    const rows = marks.map((mark) =>
      element("li", {}, `${exact(mark.at)}: `, element("a", { className: "ergon-link", href: mark.address, textContent: mark.text })),
    );
    const summary = element("summary", { textContent: `Events (${marks.length})` });
    this.events.replaceChildren(summary, element("ul", { className: "ergon-plain" }, ...rows));
  }

  // The same numbers for those who do not see the charts; made only when somebody opens them.
  fillTable() {
    const page = element("a", { className: "ergon-link", href: `${this.table}&${this.query}`, textContent: "Open as a page" });
    const summary = this.twin.querySelector("summary") ?? element("summary", { textContent: "Table" });
    if (!this.twin.open || !this.data) return this.twin.replaceChildren(summary);
    const charts = this.data.charts;
    const columns = charts.flatMap((chart) => chart.lines.map((line) => ({ chart, line })));
    const head = element("tr", {}, heading("col", "Time (UTC)"));
    head.append(...columns.map(({ chart, line }) => heading("col", `${chart.title}: ${line.name}`)));
    const rows = this.times.map((time, place) => {
      const cells = columns.map(({ chart, line }) => element("td", { textContent: told(chart.unit, line.values[place]) }));
      return element("tr", {}, heading("row", `${day(at(time))} ${clock(at(time))}`), ...cells);
    });
    const table = element("table", { className: "ergon-table" }, element("thead", {}, head), element("tbody", {}, ...rows));
    const scroll = element("div", { className: "ergon-scroll ergon-chart-table", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Charts as a table");
    const was = this.twin.querySelector(".ergon-scroll")?.scrollTop ?? 0;
    this.twin.replaceChildren(summary, element("p", {}, page), scroll);
    scroll.scrollTop = was;
  }
}

function heading(scope, textContent) {
  return element("th", { scope, textContent });
}

// One chart: its title, sentence and key, and the plot itself.
class Plot {
  constructor(box, place) {
    this.box = box;
    this.place = place;
    this.summary = element("span", { className: "ergon-hint" });
    this.title = element("strong");
    this.key = element("span", { className: "ergon-chart-key" });
    this.isLog = element("input", { type: "checkbox" });
    this.isLog.addEventListener("change", () => {
      this.box.scales[this.chart.title] = this.isLog.checked;
      this.draw(true);
    });
    this.switch = element("label", { className: "ergon-hint ergon-chart-log" }, this.isLog, " Log scale");
    this.links = element("div", { className: "ergon-chart-marks" });
    this.holder = element("div", { className: "ergon-chart-plot" });
    this.holder.setAttribute("role", "img");
    this.empty = element("p", { className: "ergon-hint ergon-chart-empty", hidden: true });
    this.gaps = element("span", { className: "ergon-hint" });
    const caption = element("figcaption", {}, this.title, " ", this.summary);
    const foot = element("div", { className: "ergon-chart-foot" }, this.key, this.gaps, this.switch);
    this.figure = element("figure", { className: "ergon-chart" }, caption, this.links, this.holder, this.empty, foot);
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(this.holder);
  }

  get chart() {
    return this.box.data.charts[this.place];
  }

  get scale() {
    return this.box.scales[this.chart.title] ?? this.box.spiky[this.place];
  }

  remove() {
    this.resized.disconnect();
    this.plot?.destroy();
  }

  resize() {
    const width = this.holder.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  draw(isAnew = false) {
    const { title, per, unit, summary, lines, gaps } = this.chart;
    this.title.textContent = per ? `${title} per ${per}` : title;
    this.summary.textContent = summary;
    this.holder.setAttribute("aria-label", `${title}: ${summary}`);
    const isEmpty = !lines.some((line) => line.values.some((value) => value));
    this.empty.hidden = !isEmpty;
    this.empty.textContent = "Nothing to draw in this range.";
    this.holder.hidden = this.links.hidden = isEmpty;
    this.figure.classList.toggle("ergon-chart-none", isEmpty);
    if (isEmpty) return this.forget();
    this.isLog.checked = this.scale;
    this.gaps.textContent = lines.some((line) => line.values.slice(0, -1).includes(null)) ? (GAPS[gaps] ?? "") : "";
    const looks = `${this.scale} ${lines.map((line) => line.name)}`;
    if (this.plot && !isAnew && looks === this.looks) {
      return this.plot.setData(this.columns());
    }
    this.forget();
    this.looks = looks;
    this.colors = getComputedStyle(this.box.body);
    this.key.replaceChildren(...lines.flatMap((line) => [this.swatch(line), element("span", { textContent: line.name })]));
    this.plot = new uPlot(this.options(), this.columns(), this.holder);
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.box.data) return;
    this.key.replaceChildren();
  }

  color(name) {
    return this.colors.getPropertyValue(`--chart-${name}`).trim();
  }

  swatch(line) {
    const made = element("span", { className: "ergon-key" });
    made.style.background = this.color(line.tone);
    return made;
  }

  get isStacked() {
    return this.chart.kind === "bars" && !this.scale;
  }

  // What is stacked is drawn from the whole down to its first part, each in front of the one before.
  columns() {
    const values = this.chart.lines.map((line) => line.values);
    if (!this.isStacked) return [this.box.times, ...values];
    const sums = values.map((_, part) =>
      this.box.times.map((_, place) => values.slice(0, part + 1).reduce((sum, one) => sum + (one[place] ?? 0), 0)),
    );
    return [this.box.times, ...sums.reverse()];
  }

  options() {
    const { unit, lines, gaps, kind } = this.chart;
    const grid = { stroke: this.color("grid"), width: 1 };
    const axis = { stroke: this.color("text"), font: "11px system-ui, sans-serif", grid, ticks: { ...grid, size: 4 } };
    const bars = uPlot.paths.bars({ size: [0.8, 24], align: 1 });
    const drawn = this.isStacked ? [...lines].reverse() : lines;
    const series = drawn.map((line) => ({
      label: line.name,
      stroke: this.color(line.tone),
      fill: this.isStacked ? this.color(line.tone) : undefined,
      width: this.isStacked ? 0 : 1.75,
      paths: this.isStacked ? bars : kind === "bars" ? uPlot.paths.stepped({ align: 1 }) : undefined,
      spanGaps: gaps === "joined",
      points: this.isStacked ? { show: false } : { size: 4, filter: alone },
    }));
    const values = (u, splits) => splits.map((one) => (one == null ? null : unit === "seconds" ? duration(one) : short.format(one)));
    // Logarithmic from the lowest value on, and linear below it: there is a place for 0.
    const lowest = Math.min(...lines.flatMap((line) => line.values.filter((value) => value)));
    const decades = (unit === "seconds" ? LOG_SECONDS : COUNTS).filter((one) => unit !== "seconds" || one >= lowest / 10);
    const y = this.scale
      ? { distr: 4, asinh: unit === "seconds" ? decades[0] : 1, range: (u, min, max) => [0, max * 1.2 || 1] }
      : { range: (u, min, max) => [0, max * 1.08 || 1] };
    const steps = this.scale
      ? { splits: (u) => [0, ...decades.filter((one) => one <= u.scales.y.max)], filter: (u, splits) => splits }
      : { incrs: unit === "seconds" ? SECONDS : COUNTS.flatMap((one) => [one, 2 * one, 5 * one]) };
    return {
      width: this.holder.clientWidth || 300,
      height: HEIGHT,
      legend: { show: false },
      tzDate: (seconds) => uPlot.tzDate(at(seconds), "UTC"),
      scales: { x: { range: () => [this.box.data.begins, this.box.data.ends] }, y },
      axes: [
        { ...axis, values: (u, splits) => splits.map(tick), space: 60, size: 28 },
        { ...axis, values, size: 58, space: 30, ...steps },
      ],
      cursor: {
        y: false,
        sync: { key: this.box.key, setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { show: !this.isStacked, size: 7 },
        bind: { dblclick: () => () => this.box.zoom && this.box.show(this.box.range) },
      },
      series: [{}, ...series],
      hooks: {
        init: [(u) => this.addTip(u)],
        drawClear: [(u) => this.shadeGaps(u)],
        draw: [(u) => this.drawMarks(u)],
        setCursor: [(u) => this.moveTip(u)],
        setSelect: [(u) => this.zoomIn(u)],
      },
    };
  }

  shadeGaps(u) {
    if (this.chart.gaps !== "marked") return;
    const values = this.chart.lines[0].values;
    const { ctx, bbox } = u;
    const width = bbox.width / values.length;
    ctx.save();
    ctx.fillStyle = this.color("gap");
    // Of the last step, which has only begun, there may still be a sample.
    for (let place = 0, from; place < values.length - 1; place = Math.max(place + 1, from)) {
      for (from = place; from < values.length - 1 && values[from] === null; ) from += 1;
      if (from > place) ctx.fillRect(bbox.left + place * width, bbox.top, (from - place) * width, bbox.height);
    }
    ctx.restore();
  }

  drawMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.setLineDash([4, 4]);
    ctx.lineWidth = devicePixelRatio;
    for (const mark of this.box.data.marks) {
      const x = Math.round(u.valToPos(mark.at, "x", true));
      ctx.strokeStyle = this.color(mark.kind);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
    if (this.place === 0) this.drawLinks(u);
  }

  // Each mark is a link above the first chart; the list of events has the same for the keyboard.
  drawLinks(u) {
    const links = this.box.data.marks.map((mark) => {
      const link = element("a", { href: mark.address, textContent: MARKS[mark.kind], title: `${exact(mark.at)}: ${mark.text}`, tabIndex: -1 });
      link.setAttribute("aria-label", mark.text);
      link.style.background = this.color(mark.kind);
      link.style.left = `${u.bbox.left / devicePixelRatio + u.valToPos(mark.at, "x")}px`;
      return link;
    });
    this.links.replaceChildren(...links);
  }

  addTip(u) {
    this.tip = element("div", { className: "ergon-chart-tip", hidden: true });
    u.over.append(this.tip);
    u.over.addEventListener("mouseenter", () => (this.isHovered = true));
    u.over.addEventListener("mouseleave", () => (this.isHovered = false));
  }

  moveTip(u) {
    const { left, idx } = u.cursor;
    this.tip.hidden = !this.isHovered || idx == null || left < 0;
    if (this.tip.hidden) return;
    const { unit, lines } = this.chart;
    const values = lines.map((line) =>
      element("div", {}, this.swatch(line), ` ${line.name} `, element("b", { textContent: told(unit, line.values[idx]) })),
    );
    const near = this.box.data.marks.filter((mark) => Math.abs(u.valToPos(mark.at, "x") - left) < NEAR);
    const marks = near.map((mark) => element("div", { textContent: `${clock(at(mark.at))} ${mark.text}` }));
    this.tip.replaceChildren(element("div", { textContent: exact(this.box.times[idx]) }), ...values, ...marks);
    const isRight = left > u.over.clientWidth / 2;
    this.tip.style.left = isRight ? "auto" : `${left + 12}px`;
    this.tip.style.right = isRight ? `${u.over.clientWidth - left + 12}px` : "auto";
  }

  zoomIn(u) {
    const { left, width } = u.select;
    if (width < 8) return;
    const [from, to] = [left, left + width].map((x) => String(Math.floor(u.posToVal(x, "x"))));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.box.show(this.box.range, { from, to });
  }
}

// A value with none beside it is no line: only a point shows it.
function alone(u, index) {
  const values = u.data[index];
  const found = [];
  values.forEach((value, place) => {
    if (value != null && values[place - 1] == null && values[place + 1] == null) found.push(place);
  });
  return found.length ? found : null;
}

function attach() {
  for (const part of document.querySelectorAll("[data-charts]")) {
    const { charts } = part.dataset;
    if (!boxes.has(charts)) boxes.set(charts, new Box(part.dataset));
    const { body } = boxes.get(charts);
    if (part.firstElementChild !== body) part.replaceChildren(body);
  }
}

const boxOf = (target) => boxes.get(target.closest("[data-charts]")?.dataset.charts);

document.addEventListener("click", ({ target }) => {
  const range = target.closest?.("[data-charts] [data-range]");
  if (range) boxOf(range).show(range.dataset.range);
  else if (target.closest?.("[data-charts] [data-zoom-out]")) boxOf(target).show(boxOf(target).range);
});

new MutationObserver(attach).observe(document.body, { childList: true, subtree: true });
new MutationObserver(() => boxes.forEach((box) => box.data && box.redraw())).observe(document.documentElement, {
  attributeFilter: ["class"],
});
attach();
// A page that refreshes itself does not keep a session alive, and one that is paused does not refresh its charts.
const isPaused = () => document.querySelector(".ergon-live[data-state=paused]") !== null;
setInterval(() => {
  if (!document.hidden && !isPaused()) boxes.forEach((box) => box.zoom || !box.body.isConnected || box.load({ "X-Ergon-Refresh": "1" }));
}, EVERY_MS);
