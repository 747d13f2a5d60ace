// Print the page: draw the charts for the width of the paper and open closed sections.

function preparePrint() {
  document.documentElement.classList.add("printing");
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.dataset.closed = "";
    details.open = true;
  }
  report.charts.forEach(draw);
}

function finishPrint() {
  document.documentElement.classList.remove("printing");
  for (const details of document.querySelectorAll("details[data-closed]")) {
    delete details.dataset.closed;
    details.open = false;
  }
  report.charts.forEach(draw);
}

addEventListener("beforeprint", preparePrint);
addEventListener("afterprint", finishPrint);
