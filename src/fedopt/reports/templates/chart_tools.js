// The pointer, the keyboard and the buttons of a chart.

function formatValue(chart, value) {
  const number = chart.y.digits === null ? Number(value.toPrecision(4)).toString() : formatNumber(value, chart.y.digits);
  return number + chart.y.suffix;
}

function nearest(values, at) {
  let best = -1;
  values.forEach((value, index) => {
    if (best < 0 || Math.abs(value - at) < Math.abs(values[best] - at)) best = index;
  });
  return best;
}

// Show the values of all lines at the recorded x that is nearest to `at`.
function showValues(chart, at) {
  const plot = document.querySelector(`#${chart.id} .plot`), { x, y, area, lines } = scales.get(chart.id);
  const inside = lines.flatMap((line) => line.x.filter((value) => value >= x.low && value <= x.high));
  hideValues(plot);
  if (!inside.length) return null;
  const shared = inside[nearest(inside, at)], px = x.position(shared), cursor = svgElement("g", { class: "cursor" });
  cursor.append(svgElement("path", { d: `M${px.toFixed(1)} ${area.top}V${area.bottom}` }));
  const tip = document.createElement("div"), rows = [];
  tip.className = "tip";
  for (const line of lines.filter((other) => other.x.length)) {
    const index = nearest(line.x, shared), { name, colour } = chart.legend[line.entry], value = line.y[index];
    const half = line.high && viewOf(chart).window === 1 ? ` ± ${formatValue({ y: { ...chart.y, suffix: "" } }, (line.high[index] - line.low[index]) / 2)}` : "";
    const there = line.x[index] === shared ? "" : ` (${formatPlace(chart, line.x[index])})`;
    rows.push({ name, colour, value, text: formatValue(chart, value).replace(chart.y.suffix, half + chart.y.suffix) + there });
    if (value <= 0 && y.log) continue;
    const centre = { cx: x.position(line.x[index]).toFixed(1), cy: y.position(value).toFixed(1) };
    if (line.x[index] >= x.low && line.x[index] <= x.high) cursor.append(svgElement("circle", { ...centre, r: 4.5, fill: colour }));
  }
  tip.append(textElement("p", formatPlace(chart, shared)));
  for (const row of rows.sort((a, b) => b.value - a.value)) {
    const shown = textElement("div", ""), swatch = textElement("i", "");
    swatch.style.background = row.colour;
    shown.append(swatch, textElement("span", row.name), textElement("b", row.text));
    tip.append(shown);
  }
  plot.querySelector("svg").append(cursor);
  plot.append(tip);
  const room = area.width - tip.offsetWidth - 4, side = px + 14 > room ? px - tip.offsetWidth - 14 : px + 14;
  tip.style.left = `${Math.max(4, Math.min(room, side))}px`;
  return shared;
}

const formatPlace = (chart, value) => chart.x.prefix + formatNumber(value, Number.isInteger(value) ? 0 : 1) + chart.x.suffix;

function textElement(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function hideValues(plot) {
  plot.querySelectorAll(".cursor, .tip").forEach((part) => part.remove());
}

// Drag to zoom. A flat selection keeps the vertical axis automatic.
function selectArea(chart, plot, start) {
  const { x, y, area } = scales.get(chart.id), box = svgElement("rect", { class: "selection" });
  const svg = plot.querySelector("svg"), at = (event) => {
    const frame = plot.getBoundingClientRect();
    const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
    return [clamp(event.clientX - frame.left, area.left, area.right), clamp(event.clientY - frame.top, area.top, area.bottom)];
  };
  const [x0, y0] = at(start);
  const isFlat = (y1) => Math.abs(y1 - y0) < 24;
  const move = (event) => {
    const [x1, y1] = at(event), [top, bottom] = isFlat(y1) ? [area.top, area.bottom] : [Math.min(y0, y1), Math.max(y0, y1)];
    const sides = { x: Math.min(x0, x1), y: top, width: Math.abs(x1 - x0), height: bottom - top };
    for (const [key, value] of Object.entries(sides)) box.setAttribute(key, value);
    if (!box.isConnected) svg.append(box);
  };
  const end = (event) => {
    plot.removeEventListener("pointermove", move);
    box.remove();
    const [x1, y1] = at(event), view = viewOf(chart);
    if (event.type !== "pointerup" || Math.abs(x1 - x0) < 8) return;
    view.x = [x.value(Math.min(x0, x1)), x.value(Math.max(x0, x1))];
    view.y = isFlat(y1) ? view.y : [y.value(Math.max(y0, y1)), y.value(Math.min(y0, y1))];
    draw(chart);
  };
  plot.setPointerCapture(start.pointerId);
  plot.addEventListener("pointermove", move);
  plot.addEventListener("pointerup", end, { once: true });
  plot.addEventListener("pointercancel", end, { once: true });
}

function resetZoom(chart) {
  Object.assign(viewOf(chart), { x: null, y: null });
  draw(chart);
}

function chartRows(chart) {
  const { window } = viewOf(chart), smoothed = window > 1 ? [`mean of the last ${window} points`] : [];
  const rows = scales.get(chart.id).lines.flatMap((line) => line.x.map((at, index) => {
    const ends = line.low ? [line.low[index], line.high[index]] : ["", ""];
    return [quote(chart.legend[line.entry].name), at, line.raw[index], ...ends, ...smoothed.map(() => line.y[index])];
  }));
  return [["line", chart.x.title, chart.y.title, "low", "high", ...smoothed].map(quote), ...rows];
}

// The drawing with its title and legend, and with all styles as attributes, so that it needs no style sheet.
function standaloneSvg(chart) {
  const figure = document.getElementById(chart.id), source = figure.querySelector(".plot svg"), copy = source.cloneNode(true);
  const names = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
  const originals = source.querySelectorAll("*"), ink = getComputedStyle(figure).color;
  copy.querySelectorAll("*").forEach((part, at) => {
    const style = getComputedStyle(originals[at]);
    names.forEach((name) => part.setAttribute(name, style.getPropertyValue(name)));
  });
  const { width, height } = scales.get(chart.id).area, font = getComputedStyle(document.body).fontFamily;
  const head = svgElement("g", { "font-family": font, fill: ink }), tag = figure.querySelector("h2 .tag");
  head.append(svgElement("text", { x: 4, y: 20, "font-size": 15, "font-weight": 600 }, chart.title + (tag ? `, ${tag.textContent}` : "")));
  let [px, py] = [4, 44];
  for (const { name, colour, dash, marker } of chart.legend.filter((entry) => !hidden.has(entry.name))) {
    const needed = 56 + 7.2 * name.length;
    if (px > 4 && px + needed > width) [px, py] = [4, py + 20];
    head.append(svgElement("path", { d: `M${px} ${py - 4}h34`, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }));
    head.append(svgElement("path", { d: marker, transform: `translate(${px + 17} ${py - 4})`, fill: colour }));
    head.append(svgElement("text", { x: px + 40, y: py, "font-size": 13 }, name));
    px += needed;
  }
  const body = svgElement("g", { transform: `translate(0 ${py + 8})` }), total = height + py + 8;
  body.append(...copy.childNodes);
  const background = svgElement("rect", { width: "100%", height: "100%", fill: getComputedStyle(figure).backgroundColor });
  copy.replaceChildren(background, head, body);
  for (const [key, value] of Object.entries({ xmlns: SVG, width, height: total, viewBox: `0 0 ${width} ${total}` })) copy.setAttribute(key, value);
  return { text: new XMLSerializer().serializeToString(copy), width, height: total };
}

function downloadPng(chart) {
  hideValues(document.querySelector(`#${chart.id} .plot`));
  const { text, width, height } = standaloneSvg(chart), image = new Image(), canvas = document.createElement("canvas");
  image.onload = () => {
    [canvas.width, canvas.height] = [2 * width, 2 * height];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(blob, `${chart.id}.png`), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

const CHART_ACTIONS = {
  reset: resetZoom,
  log: (chart, button) => {
    const view = viewOf(chart);
    view.log = !view.log;
    if (view.log && view.y && view.y[0] <= 0) view.y = null;
    button.setAttribute("aria-pressed", String(view.log));
    draw(chart);
  },
  png: downloadPng,
  csv: (chart) => downloadCsv(chartRows(chart), chart.id),
};

function mountChart(chart) {
  const figure = document.getElementById(chart.id), plot = figure.querySelector(".plot"), view = viewOf(chart);
  let at = null;  // the position of the cursor
  figure.querySelector('[data-do="log"]').setAttribute("aria-pressed", String(view.log));
  figure.querySelector(".tools").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) CHART_ACTIONS[button.dataset.do](chart, button);
  });
  const smoothing = figure.querySelector('[data-do="smooth"]');
  if (smoothing) {
    if (![...smoothing.options].some((option) => option.value === String(view.window))) view.window = chart.window;
    smoothing.value = String(view.window);
    smoothing.addEventListener("change", () => {
      view.window = Number(smoothing.value);
      draw(chart);
    });
  }
  for (const button of figure.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => toggleLine(button.dataset.line, false));
    button.addEventListener("dblclick", () => toggleLine(button.dataset.line, true));
  }
  plot.addEventListener("pointermove", (event) => {
    const left = event.clientX - plot.getBoundingClientRect().left;
    at = scales.has(chart.id) ? showValues(chart, scales.get(chart.id).x.value(left)) : null;
  });
  plot.addEventListener("pointerleave", () => hideValues(plot));
  plot.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) selectArea(chart, plot, event);
  });
  plot.addEventListener("dblclick", () => resetZoom(chart));
  plot.addEventListener("blur", () => hideValues(plot));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") resetZoom(chart);
    if (!step) return;
    event.preventDefault();
    const places = [...new Set(scales.get(chart.id).lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const index = at === null ? (step > 0 ? 0 : places.length - 1) : nearest(places, at) + step;
    if (places[index] !== undefined) at = showValues(chart, places[index]);
  });
  new ResizeObserver(() => draw(chart)).observe(plot);
  draw(chart);
}
