// Draw charts as SVG for the current width, zoom, scale and smoothing.

const SVG = "http://www.w3.org/2000/svg";
const ROUNDING = 1e-9;  // relative tolerance for a tick at the end of the axis
const TOP = 34, RIGHT = 18, BOTTOM = 46;  // margins in pixels; the left one depends on the tick labels
const X_SPACING = 90, Y_SPACING = 52;  // pixels between ticks
const DIGIT_WIDTH = 7.2;  // of a tick label
const MARKERS = 12;  // on a line
const BAND_SHARE = 0.5;  // bands extend the axis by at most this share of the span of the lines
const hidden = new Set();  // names of hidden lines, for all charts
const views = new Map();  // zoom, scale and smoothing by the id of the chart
const scales = new Map();  // scales of the last drawing, by the id of the chart

function svgElement(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function viewOf(chart) {
  if (!views.has(chart.id)) views.set(chart.id, { x: null, y: null, log: chart.y.log, window: chart.window });
  return views.get(chart.id);
}

function makeScale([low, high], start, end, log) {
  const of = (value) => (log ? Math.log10(value) : value);
  const factor = (end - start) / (of(high) - of(low));
  return {
    low, high, log,
    position: (value) => start + factor * (of(value) - of(low)),
    value: (pixel) => { const at = of(low) + (pixel - start) / factor; return log ? 10 ** at : at; },
    ticks: (spacing) => (log ? logTicks(low, high) : linearTicks(low, high, Math.max(2, Math.abs(end - start) / spacing))),
  };
}

function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw)), slack = ROUNDING * (high - low);
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * (1 - ROUNDING));
  const ticks = [];
  for (let at = Math.ceil((low - slack) / step); at <= Math.floor((high + slack) / step); at += 1) {
    ticks.push(Number((at * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), ticks = [];
  const factors = Math.log10(high / low) < 2 ? [1, 2, 5] : [1];
  for (let power = first; power <= last; power += Math.max(1, Math.floor((last - first) / 6))) {
    for (const factor of factors) ticks.push(Number(`${factor}e${power}`));
  }
  return ticks.filter((value) => low <= value && value <= high);
}

function formatNumber(value, digits) {
  const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return text.replace("-", "\u2212");
}

function formatTicks(values, log) {
  const small = (value) => Math.max(0, -Math.floor(Math.log10(value) + ROUNDING));
  if (log) {
    return values.map((v) => (v >= 1e-4 && v < 1e7 ? formatNumber(v, small(v)) : v.toExponential(0).replace("+", "")));
  }
  const step = values.length > 1 ? values[1] - values[0] : values[0] || 1;
  return values.map((value) => formatNumber(value, small(Math.abs(step))));
}

function valueRange(values, log) {
  const known = log ? values.filter((value) => value > 0) : values;
  if (!known.length) return log ? [0.1, 1] : [0, 1];
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  if (log) {
    const factor = high > low ? (high / low) ** 0.04 : 2;
    return [low / factor, high * factor];
  }
  const margin = 0.04 * (high - low) || 0.5 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}

function movingAverage(values, window) {
  let sum = 0;
  return values.map((value, at) => {
    sum += value - (at >= window ? values[at - window] : 0);
    return sum / Math.min(at + 1, window);
  });
}

function visibleLines(chart) {
  const shown = chart.lines.filter((line) => line.entry !== null && !hidden.has(chart.legend[line.entry].name));
  const { window } = viewOf(chart);  // the band stays the interval of each point
  return shown.map((line) => ({ ...line, y: window > 1 ? movingAverage(line.y, window) : line.y, raw: line.y }));
}

function verticalRange(chart, lines, view, xRange) {
  if (view.y) return view.y;
  const inside = (line, values) => (values || []).filter((_, at) => line.x[at] >= xRange[0] && line.x[at] <= xRange[1]);
  const trials = chart.y.fits_trials ? chart.lines.filter((line) => line.entry === null) : [];
  const [low, high] = valueRange([...lines, ...trials].flatMap((line) => inside(line, line.raw || line.y)), view.log);
  const reach = view.log ? 0 : BAND_SHARE * (high - low);
  const lowest = lines.flatMap((line) => inside(line, line.low)).reduce((a, b) => Math.min(a, b), low);
  const highest = lines.flatMap((line) => inside(line, line.high)).reduce((a, b) => Math.max(a, b), high);
  return [Math.max(lowest, low - reach), Math.min(highest, high + reach)];
}

function pointsOf(xs, ys, x, y) {
  const known = xs.map((at, index) => [at, ys[index]]).filter(([, value]) => value > 0 || !y.log);
  return known.map(([at, value]) => [Number(x.position(at).toFixed(1)), Number(y.position(value).toFixed(1))]);
}

const pathOf = (points) => points.map(([px, py], at) => `${at ? "L" : "M"}${px} ${py}`).join("");

// Return the paths behind all lines, the line, and its markers, which are not clipped at the axes.
function drawLine(chart, line, x, y) {
  const { colour, dash, marker } = chart.legend[line.entry], behind = [];
  if (line.low) {
    const low = pointsOf(line.x, line.low.map((value) => Math.max(value, y.low)), x, y).reverse();
    const d = `${pathOf(pointsOf(line.x, line.high, x, y))}${pathOf(low).replace("M", "L")}Z`;
    if (low.length) behind.push(svgElement("path", { class: "band", d, fill: colour }));
  }
  if (viewOf(chart).window > 1) {
    behind.push(svgElement("path", { class: "raw", d: pathOf(pointsOf(line.x, line.raw, x, y)), stroke: colour }));
  }
  const isSeen = (value, at) => x.low <= line.x[at] && line.x[at] <= x.high && y.low <= value && value <= y.high;
  const seen = line.y.map((value, at) => (isSeen(value, at) ? [line.x[at], value] : null)).filter(Boolean);
  const step = Math.max(1, Math.floor(seen.length / MARKERS));
  const marked = seen.filter((_, at) => at % step === 0 || at === seen.length - 1);
  const markers = pointsOf(marked.map(([at]) => at), marked.map(([, value]) => value), x, y).map(([px, py]) => (
    svgElement("path", { class: "marker", d: marker, transform: `translate(${px} ${py})`, fill: colour })));
  const d = pathOf(pointsOf(line.x, line.y, x, y));
  return { behind, line: svgElement("path", { class: "line", d, stroke: colour, "stroke-dasharray": dash }), markers };
}

function drawAxes(chart, view, x, y, area) {
  const group = svgElement("g", { class: "axes" }), { left, right, top, bottom, height } = area;
  const yTicks = y.ticks(Y_SPACING);
  const xTicks = x.ticks(X_SPACING).filter((tick) => Number.isInteger(tick) || !chart.x.whole);
  formatTicks(yTicks, view.log).forEach((label, at) => {
    const py = y.position(yTicks[at]).toFixed(1);
    group.append(svgElement("path", { class: "grid", d: `M${left} ${py}H${right}` }));
    group.append(svgElement("text", { class: "y", x: left - 7, y: Number(py) + 4 }, label));
  });
  formatTicks(xTicks, false).forEach((label, at) => {
    const px = x.position(xTicks[at]).toFixed(1);
    group.append(svgElement("path", { class: "grid", d: `M${px} ${top}V${bottom + 4}` }));
    group.append(svgElement("text", { class: "x", x: px, y: bottom + 19 }, label));
  });
  group.append(svgElement("path", { class: "frame", d: `M${left} ${top}V${bottom}H${right}` }));
  group.append(svgElement("text", { class: "title", x: 4, y: 16 }, chart.y.title + (view.log ? ", log scale" : "")));
  group.append(svgElement("text", { class: "title end", x: right, y: height - 8 }, chart.x.title));
  return group;
}

function draw(chart) {
  const figure = document.getElementById(chart.id), plot = figure.querySelector(".plot"), view = viewOf(chart);
  const width = plot.clientWidth, height = plot.clientHeight;
  if (!width) return;  // in a closed section
  const ends = chart.lines.filter((line) => line.x.length).map((line) => line.x[line.x.length - 1]);
  const xRange = view.x || [0, ends.reduce((a, b) => Math.max(a, b), 0) || 1];
  const lines = visibleLines(chart), yRange = verticalRange(chart, lines, view, xRange);
  const y = makeScale(yRange, height - BOTTOM, TOP, view.log);
  const labels = formatTicks(y.ticks(Y_SPACING), view.log).map((label) => label.length);
  const left = 16 + DIGIT_WIDTH * Math.max(...labels, 1);
  const area = { width, height, left, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
  const x = makeScale(xRange, area.left, area.right, false);
  const clip = svgElement("clipPath", { id: `${chart.id}-clip` }), clipped = svgElement("g", { "clip-path": `url(#${chart.id}-clip)` });
  clip.append(svgElement("rect", { x: left, y: TOP, width: area.right - left, height: area.bottom - TOP }));
  for (const line of chart.lines.filter((other) => other.entry === null)) {
    const trial = svgElement("path", { class: "trial-line", d: pathOf(pointsOf(line.x, line.y, x, y)) });
    if (line.colour) trial.style.stroke = line.colour;
    clipped.append(trial);
  }
  if (chart.target !== null && chart.target >= y.low && chart.target <= y.high) {
    const py = y.position(chart.target).toFixed(1);
    clipped.append(svgElement("path", { class: "target", d: `M${left} ${py}H${area.right}` }));
  }
  const drawn = lines.map((line) => drawLine(chart, line, x, y));
  clipped.append(...drawn.flatMap(({ behind }) => behind), ...drawn.map(({ line }) => line));
  const svg = plot.querySelector("svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  hideValues(plot);
  svg.replaceChildren(clip, drawAxes(chart, view, x, y, area), clipped, ...drawn.flatMap(({ markers }) => markers));
  scales.set(chart.id, { x, y, area, lines });
  const faint = chart.lines.some((line) => line.low) ? "Faint line and band" : "Faint";
  const note = view.window > 1 ? `Mean of the last ${view.window} points. ${faint}: each point.` : "";
  figure.querySelector(".smoothnote").textContent = note;
  figure.querySelector('[data-do="reset"]').hidden = !(view.x || view.y);
}

function toggleLine(name, only) {
  const names = new Set(charts.flatMap((chart) => chart.legend.map((entry) => entry.name)));
  const sameChart = charts.filter((chart) => chart.legend.some((entry) => entry.name === name));
  const others = sameChart.flatMap((chart) => chart.legend.map((entry) => entry.name)).filter((other) => other !== name);
  if (!only) {
    if (!hidden.delete(name)) hidden.add(name);
  } else if (!hidden.has(name) && others.every((other) => hidden.has(other))) {
    names.forEach((other) => hidden.delete(other));  // a second double-click shows all lines again
  } else {
    hidden.delete(name);
    others.forEach((other) => hidden.add(other));
  }
  showHidden();
  charts.forEach(draw);
}

function showHidden() {
  for (const button of document.querySelectorAll(".legend [data-line]")) {
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.line)));
  }
}
