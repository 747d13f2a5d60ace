"""The fixed parts of the report page: its style sheet and its script.

Plain CSS and JavaScript, kept in the page so that it is one file that needs no network. The script draws
the charts from the JSON in the page, repeats them when the reader switches between light and dark, and
sorts the tables; everything else on the page works without it.
"""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1c2024; --soft: #5a636d; --line: #dfe2e6; --grid: #eceef0;
  --accent: #0b5a8f; --mark: #eef4f9; --warn-ink: #6b4300; --warn: #fdf0d5; --bad: #a3200d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1b1f23; --ink: #e6e8ea; --soft: #a3acb5; --line: #333a41; --grid: #292f35;
    --accent: #7fc1f0; --mark: #22303b; --warn-ink: #ffd88a; --warn: #42330f; --bad: #ff9c8a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main, header { max-width: 70rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
main { padding-bottom: 4rem; }
h1 { font-size: clamp(1.5rem, 1.1rem + 1.8vw, 2.1rem); line-height: 1.2; letter-spacing: -0.01em; margin: 0; }
h1, h2, h3, p, dd, td, th { overflow-wrap: break-word; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.75rem 0 0.25rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 0.4rem 0; max-width: 52rem; }
.quiet { color: var(--soft); font-size: 0.9rem; }
.badge {
  display: inline-block; padding: 0.1rem 0.6rem; margin: 0.7rem 0 0; border-radius: 1rem; font-size: 0.85rem;
  font-weight: 600; color: var(--warn-ink); background: var(--warn); border: 1px solid currentColor;
}
.facts { display: flex; flex-wrap: wrap; gap: 0.6rem 2.2rem; margin: 1.1rem 0; }
.facts dt { color: var(--soft); font-size: 0.8rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; }
.lead { font-size: 1.1rem; margin: 1rem 0 0; max-width: none; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem; margin: 2rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
figure { margin: 0; padding: 1rem 1rem 0.5rem; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure h2 { margin: 0; font-size: 1.05rem; }
.plot { height: 20rem; margin-top: 0.4rem; }
.wide .plot { height: 25rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.15rem 0.3rem; margin: 0.5rem 0 0 -0.4rem; }
.legend button {
  display: inline-flex; align-items: center; gap: 0.4rem; padding: 0.2rem 0.4rem; min-height: 1.9rem;
  font: inherit; font-size: 0.88rem; color: var(--ink); background: none; border: 0; border-radius: 5px;
  cursor: pointer; text-align: left; max-width: 100%; overflow-wrap: anywhere;
}
.legend button:hover, th button:hover { background: var(--mark); }
.legend [aria-pressed="false"] { color: var(--soft); text-decoration: line-through; }
.legend [aria-pressed="false"] svg { opacity: 0.25; }
svg.swatch { flex: none; width: 36px; height: 14px; overflow: visible; color: var(--ink); }
.name { display: flex; align-items: flex-start; gap: 0.5rem; }
.name svg.swatch { margin-top: 0.32rem; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.scroll { overflow-x: auto; margin-top: 0.75rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.5rem 0.8rem; text-align: right; border-bottom: 1px solid var(--line); }
thead th, tbody th, td { white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--card); }
thead th { font-weight: 600; color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 500; }
td.best { font-weight: 700; background: var(--mark); }
td.absent { color: var(--soft); }
.state { display: block; font-weight: 400; font-size: 0.82rem; color: var(--soft); }
.state.failed { color: var(--bad); }
th button {
  font: inherit; color: inherit; background: none; border: 0; padding: 0.15rem 0.25rem; margin: 0 -0.25rem;
  cursor: pointer; border-radius: 3px;
}
th button::after { content: "\\2195"; display: inline-block; width: 1.1em; text-align: right; opacity: 0.45; }
th[aria-sort="ascending"] button, th[aria-sort="descending"] button { color: var(--ink); }
th[aria-sort="ascending"] button::after { content: "\\2191"; opacity: 1; }
th[aria-sort="descending"] button::after { content: "\\2193"; opacity: 1; }
code, pre { font: 0.85rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.runs { display: grid; gap: 0.75rem; margin-top: 0.75rem; }
.run { padding: 0.8rem 1rem; min-width: 0; }
.run pre { margin: 0.5rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
.run p { margin: 0.35rem 0 0; overflow-wrap: anywhere; max-width: none; }
.bad { color: var(--bad); }
@media (max-width: 52rem) { .charts { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 40rem) {
  header, main { padding-left: 0.9rem; padding-right: 0.9rem; }
  header { padding-top: 1.5rem; }
  figure { padding: 0.8rem 0.6rem 0.25rem; }
  .plot, .wide .plot { height: 18.5rem; }
  .legend { margin-left: 0; }
  .legend button { min-height: 2.3rem; }
  tbody th { white-space: normal; min-width: 9.5rem; }
  .facts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.6rem 1rem; }
  th, td { padding: 0.5rem 0.6rem; }
}
@media print {
  th button::after { content: ""; }
  .card, .run { break-inside: avoid; }
}
"""

SCRIPT = """
"use strict";
const report = JSON.parse(document.getElementById("report-data").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (run) => (run.colour === "ink" ? css("--ink") : run.colour);
const touch = matchMedia("(pointer: coarse)").matches;  // dragging must scroll the page there, not zoom
const narrow = matchMedia("(max-width: 40rem)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const hidden = new Set();

function trace(chart, line) {
  const run = report.runs[line.run];
  const shared = {
    x: line.x, y: line.y, name: run.name, type: "scatter", showlegend: false, visible: !hidden.has(line.run),
  };
  if (line.faint) {
    const thin = { color: colour(run), width: 1 };
    return { ...shared, mode: "lines", line: thin, opacity: 0.35, hoverinfo: "skip" };
  }
  return {
    ...shared,
    mode: "lines+markers",
    line: { color: colour(run), width: 2, dash: run.dash },
    marker: { symbol: run.symbol, size: 8, color: colour(run), maxdisplayed: 12 },
    hovertemplate: chart.hover,
    cliponaxis: false,  // a marker on the axis is drawn whole
  };
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
    paper_bgcolor: css("--card"), plot_bgcolor: css("--card"), margin: { l: 8, r: 14, t: 10, b: 8 },
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
  for (const chart of report.charts) {
    const place = document.getElementById(chart.id);
    const lines = chart.lines.map((line) => trace(chart, line));
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
  if (a === "" || b === "") return (a === "") - (b === "");  // what is absent stays last, in either order
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
"""
