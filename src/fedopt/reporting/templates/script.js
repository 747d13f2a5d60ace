"use strict";
const report = JSON.parse(document.getElementById("report-data").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (run) => (run.colour === "ink" ? css("--ink") : run.colour);
const touch = matchMedia("(pointer: coarse)").matches;  // dragging scrolls the page there instead of zooming
const narrow = matchMedia("(max-width: 40rem)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const hidden = new Set();
let revision = 0;  // a new revision makes plotly update its ticks

// Return the plotly traces of a line: its band, if it has one, and the line itself.
function traces(chart, line) {
  const base = { x: line.x, y: line.y, type: "scatter", showlegend: false };
  if (line.run === null) {
    const grey = { color: css("--faint"), width: 1 };
    return [{ ...base, mode: "lines", line: grey, hoverinfo: "skip" }];
  }
  const run = report.runs[line.run];
  const shared = { ...base, name: run.name, visible: !hidden.has(line.run) };
  if (line.faint) {
    const thin = { color: colour(run), width: 1 };
    return [{ ...shared, mode: "lines", line: thin, opacity: 0.35, hoverinfo: "skip" }];
  }
  const drawn = {
    ...shared,
    mode: "lines+markers",
    line: { color: colour(run), width: 2, dash: run.dash },
    marker: { symbol: run.symbol, size: 8, color: colour(run), maxdisplayed: 12 },
    hovertemplate: line.half ? chart.hoverSpread : chart.hover,
    customdata: line.half,
    cliponaxis: false,  // draw markers on the axis completely
  };
  if (!line.half) return [drawn];
  const band = {
    ...shared, x: [...line.x, ...[...line.x].reverse()], y: [...line.high, ...[...line.low].reverse()],
    mode: "none", fill: "toself", fillcolor: colour(run) + "2e", hoverinfo: "skip",
  };
  return [band, drawn];
}

function axis(options) {
  return {
    ...options,
    title: { text: options.title, standoff: 10, font: { size: 13, color: css("--soft") } },
    gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, showline: true, automargin: true,
    ticks: "outside", ticklen: 4, tickcolor: css("--line"), tickfont: { size: 12 }, tickangle: 0,
    nticks: narrow.matches ? 5 : 7, fixedrange: touch,
  };
}

function layout(chart) {
  const target = chart.target === null ? [] : [chart.target];
  return {
    datarevision: revision, paper_bgcolor: css("--card"), plot_bgcolor: css("--card"), margin: { l: 8, r: 14, t: 10, b: 8 },
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("--soft") },
    xaxis: axis(chart.x), yaxis: axis(chart.y), dragmode: touch ? false : "zoom", hovermode: chart.hovermode,
    hoverlabel: {
      bgcolor: css("--card"), bordercolor: css("--line"), namelength: -1,
      font: { color: css("--ink"), size: 12 },
    },
    shapes: target.map((y) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, layer: "below",
      line: { color: css("--soft"), width: 1, dash: "dot" },
    })),
  };
}

function draw() {
  revision += 1;
  for (const chart of report.charts) {
    const place = document.getElementById(chart.id);
    const lines = chart.lines.flatMap((line) => traces(chart, line));
    Plotly.react(place, lines, layout(chart), { displayModeBar: false, responsive: true });
  }
}

function toggle(run) {
  if (!hidden.delete(run)) hidden.add(run);
  for (const button of document.querySelectorAll(`.legend [data-run="${run}"]`)) {
    button.setAttribute("aria-pressed", String(!hidden.has(run)));
  }
  draw();
}

function compare(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === "");  // absent values stay last in both orders
  const [x, y] = [Number(a), Number(b)];
  return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y);
}

function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const opposite = { ascending: "descending", descending: "ascending" };
  const order = opposite[heads[column].getAttribute("aria-sort")] || heads[column].dataset.first;
  heads.forEach((head, at) => head.setAttribute("aria-sort", at === column ? order : "none"));
  const value = (row) => row.cells[column].dataset.value;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(value(a), value(b), order === "ascending" ? 1 : -1));
  table.tBodies[0].append(...rows);
}

// Heat maps: below each map, show the trial under the pointer or with the focus.

function showTrial(cell) {
  const place = cell.closest("figure").querySelector(".trial");
  place.replaceChildren();
  for (const [term, description] of Object.entries(JSON.parse(cell.dataset.trial))) {
    const row = document.createElement("div");
    row.append(document.createElement("dt"), document.createElement("dd"));
    row.firstChild.textContent = term;
    row.lastChild.textContent = description;
    place.append(row);
  }
}

const entry = (table) => table.querySelector('.cell[tabindex="0"]');

function move(table, cell, right, down) {
  const rows = [...table.rows].map((row) => [...row.querySelectorAll(".cell")]).filter((row) => row.length);
  const row = rows.findIndex((cells) => cells.includes(cell));
  const next = rows[row + down]?.[rows[row].indexOf(cell) + right];
  if (next) next.focus();
}

const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

for (const table of document.querySelectorAll("table.heat")) {
  table.addEventListener("pointerover", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) showTrial(cell);
  });
  table.addEventListener("pointerleave", () => showTrial(entry(table)));
  table.addEventListener("focusin", (event) => {
    const cell = event.target.closest(".cell");
    entry(table).tabIndex = -1;  // Tab returns to the last cell
    cell.tabIndex = 0;
    showTrial(cell);
  });
  table.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    move(table, event.target.closest(".cell"), ...step);
  });
  if (!table.closest(".heatbox").hidden) showTrial(entry(table));
}
for (const select of document.querySelectorAll("select[data-maps]")) {
  select.addEventListener("change", () => {
    for (const box of document.querySelectorAll(`#${select.dataset.maps} .heatbox`)) {
      box.hidden = box.dataset.map !== select.value;
      if (!box.hidden) showTrial(entry(box.querySelector("table.heat")));
    }
  });
}

for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => toggle(Number(button.dataset.run)));
}
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead button").forEach((button, column) => {
    button.addEventListener("click", () => sort(table, column));
  });
}
dark.addEventListener("change", draw);
narrow.addEventListener("change", draw);
draw();
