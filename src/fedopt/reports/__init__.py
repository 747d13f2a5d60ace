"""Numbers, tables, charts and pages from recorded runs.

The package is not called `fedopt.report`, because importing it would replace the function `fedopt.report`.
"""

from fedopt.formatting import metric_unit
from fedopt.intervals import CONFIDENCE, Interval, confidence_interval, is_noise, paired_difference
from fedopt.reports.charts import mean_curve
from fedopt.reports.grids import (
    MethodTrials,
    RateGrid,
    RateTrial,
    find_grids,
    log10,
    measure_ease_of_tuning,
    metric_tolerance,
)
from fedopt.reports.heatmaps import PALETTE, cell_colours, metric_scale, text_colour
from fedopt.reports.line_styles import ALGORITHM_STYLES
from fedopt.reports.page import keep_units, render_template
from fedopt.reports.seeds import SeedGroup, parse_seeds
from fedopt.reports.sentences import describe_margin, headline
from fedopt.reports.summary import TRAIN_LOSS, Comparison, Summary, compare_runs

__all__ = [
    "ALGORITHM_STYLES",
    "CONFIDENCE",
    "Comparison",
    "Interval",
    "MethodTrials",
    "PALETTE",
    "RateGrid",
    "RateTrial",
    "SeedGroup",
    "Summary",
    "TRAIN_LOSS",
    "cell_colours",
    "compare_runs",
    "confidence_interval",
    "describe_margin",
    "find_grids",
    "headline",
    "is_noise",
    "keep_units",
    "log10",
    "mean_curve",
    "measure_ease_of_tuning",
    "metric_scale",
    "metric_tolerance",
    "metric_unit",
    "paired_difference",
    "parse_seeds",
    "render_template",
    "text_colour",
]
