// Connect the script with the page, and print it: with charts for the width of the paper and open sections.

let charts = [];

function mountPage() {
  charts = JSON.parse(document.getElementById("report-data").textContent);
  mountTables();
  mountHeatMaps();
  charts.forEach(mountChart);
  showHidden();
}

function setPrinting(isPrinting) {
  document.documentElement.classList.toggle("printing", isPrinting);
  for (const details of document.querySelectorAll(isPrinting ? "details:not([open])" : "details[data-closed]")) {
    details.open = isPrinting;
    details.toggleAttribute("data-closed", isPrinting);
  }
  charts.forEach(draw);
}

addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));
mountPage();
