// Heat maps: show the trial under the pointer or with the focus beside the map.

function showTrial(cell) {
  const place = cell.closest("figure").querySelector(".trial");
  const table = cell.closest("figure").querySelector(".trials table"), shown = table.tBodies[0].rows[cell.dataset.trial];
  place.replaceChildren();
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const text = shown ? shown.cells[at].textContent : "";
    if (!text) return;
    const row = document.createElement("div");
    row.append(textElement("dt", head.textContent), textElement("dd", text));
    place.append(row);
  });
  if (!shown) place.append(textElement("dd", cell.ariaLabel));
}

const entryCell = (table) => table.querySelector('.cell[tabindex="0"]');

function moveFocus(table, cell, right, down) {
  const rows = [...table.rows].map((row) => [...row.querySelectorAll(".cell")]).filter((row) => row.length);
  const row = rows.findIndex((cells) => cells.includes(cell));
  const next = rows[row + down]?.[rows[row].indexOf(cell) + right];
  if (next) next.focus();
}

const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

function mountHeatMaps() {
  for (const table of document.querySelectorAll("table.heat")) {
    table.addEventListener("pointerover", (event) => {
      const cell = event.target.closest(".cell");
      if (cell) showTrial(cell);
    });
    table.addEventListener("pointerleave", () => showTrial(entryCell(table)));
    table.addEventListener("focusin", (event) => {
      const cell = event.target.closest(".cell");
      entryCell(table).tabIndex = -1;  // Tab returns to the last cell
      cell.tabIndex = 0;
      showTrial(cell);
    });
    table.addEventListener("keydown", (event) => {
      const step = ARROWS[event.key];
      if (!step) return;
      event.preventDefault();
      moveFocus(table, event.target.closest(".cell"), ...step);
    });
    if (!table.closest(".heatbox").hidden) showTrial(entryCell(table));
  }
  for (const select of document.querySelectorAll("select[data-maps]")) {
    select.addEventListener("change", () => {
      for (const box of document.querySelectorAll(`#${select.dataset.maps} .heatbox`)) {
        box.hidden = box.dataset.map !== select.value;
        if (!box.hidden) showTrial(entryCell(box.querySelector("table.heat")));
      }
    });
  }
}
