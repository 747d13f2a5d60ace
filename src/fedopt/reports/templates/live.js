// Keep the page of `fedopt watch` current.

function pageState() {
  const table = document.getElementById("results-table");
  const sorted = table ? [...table.tHead.rows[0].cells].findIndex((head) => head.getAttribute("aria-sort") !== "none") : -1;
  return {
    open: [...document.querySelectorAll("details")].map((details) => details.open),
    choices: [...document.querySelectorAll("main select[data-maps]")].map((select) => select.value),
    checks: [...document.querySelectorAll("main input[type=checkbox]")].map((box) => box.checked),
    sorted, order: sorted < 0 ? "" : table.tHead.rows[0].cells[sorted].getAttribute("aria-sort"),
  };
}

function restoreState(state) {
  document.querySelectorAll("details").forEach((details, at) => { details.open = Boolean(state.open[at]); });
  document.querySelectorAll("main input[type=checkbox]").forEach((box, at) => { box.checked = Boolean(state.checks[at]); });
  document.querySelectorAll("main select[data-maps]").forEach((select, at) => {
    if (![...select.options].some((option) => option.value === state.choices[at])) return;
    select.value = state.choices[at];
    select.dispatchEvent(new Event("change"));
  });
  const table = document.getElementById("results-table"), head = table?.tHead.rows[0].cells[state.sorted];
  for (let click = 0; head && head.getAttribute("aria-sort") !== state.order && click < 2; click += 1) {
    head.querySelector("button").click();
  }
}

let released = Promise.resolve();  // while the reader drags in a chart, the page stays as it is
addEventListener("pointerdown", (event) => {
  if (!event.target.closest(".plot")) return;
  released = new Promise((done) => {
    for (const type of ["pointerup", "pointercancel"]) addEventListener(type, done, { once: true });
  });
});

async function refresh() {
  const answer = await fetch(location.href);
  if (!answer.ok) return false;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!next.getElementById("report-data") || !document.getElementById("report-data")) {
    location.reload();  // from waiting to the first run
    return false;
  }
  await released;
  const state = pageState();
  document.title = next.title;
  for (const part of ["header", "main", "#report-data"]) document.querySelector(part).replaceWith(document.adoptNode(next.querySelector(part)));
  mountPage();
  restoreState(state);
  return true;
}

let lastChange = null;
const setStatus = (text) => { document.querySelector(".live").textContent = text; };

async function follow() {
  try {
    const answer = await fetch(`/version${location.search}`), version = await answer.text();
    if (!answer.ok) throw new Error(version);
    if (version !== document.querySelector(".live").dataset.version && await refresh()) lastChange = new Date();
    setStatus(lastChange === null ? "Live." : `Live. Last change: ${lastChange.toLocaleTimeString()}.`);
  } catch {
    setStatus("The connection is lost. The numbers are those of the last change.");
  }
  setTimeout(follow, 1000);
}

follow();
