"""The HTML report that compares runs of one task."""

from fedopt.reporting.overview import default_title as default_title
from fedopt.reporting.page import render_report as render_report
from fedopt.reporting.page import write_report as write_report
