// Sorting, copying and downloading.

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const quote = (value) => `"${String(value).replaceAll('"', '""')}"`;

function downloadCsv(rows, name) {
  download(new Blob([rows.map((row) => `${row.join(",")}\n`).join("")], { type: "text/csv" }), `${name}.csv`);
}

function copySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

async function copyText(text, button) {
  const label = button.dataset.label ||= button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // the browser refuses, for example on a page without HTTPS
    copySelection(text);
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 2000);
}

function tableRows(table) {
  const cellText = (cell) => cell.innerText.replace(/[\u2195\u2191\u2193]/g, "").replace(/\s+/g, " ").trim();
  return [...table.rows].map((row) => [...row.cells].map(cellText));
}

function compareValues(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === "");  // absent values stay last in both orders
  const [x, y] = [Number(a), Number(b)];
  return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y);
}

function sortTable(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const opposite = { ascending: "descending", descending: "ascending" };
  const order = opposite[heads[column].getAttribute("aria-sort")] || heads[column].dataset.first;
  heads.forEach((head, at) => head.setAttribute("aria-sort", at === column ? order : "none"));
  const value = (row) => row.cells[column].dataset.value;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compareValues(value(a), value(b), order === "ascending" ? 1 : -1));
  table.tBodies[0].append(...rows);
}

function mountTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("thead button").forEach((button, column) => {
      button.addEventListener("click", () => sortTable(table, column));
    });
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    const source = document.getElementById(button.dataset.copy);
    const text = () => (source.tagName === "TABLE" ? tableRows(source).map((row) => row.join("\t")).join("\n") : source.textContent);
    button.addEventListener("click", () => copyText(text(), button));
  }
  for (const button of document.querySelectorAll("[data-csv]")) {
    const rows = () => tableRows(document.getElementById(button.dataset.csv)).map((row) => row.map(quote));
    button.addEventListener("click", () => downloadCsv(rows(), button.dataset.csv));
  }
}
