// Connect the script with the page.

let report = null;

function mountPage() {
  report = JSON.parse(document.getElementById("report-data").textContent);
  mountTables();
  mountHeatMaps();
  report.charts.forEach(mountChart);
  showHidden();
}

mountPage();
