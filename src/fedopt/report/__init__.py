"""The HTML page that compares runs of one task."""

from fedopt.report.page import render as render
from fedopt.report.page import write_report as write_report
