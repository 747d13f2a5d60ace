"""Formats of metrics, settings, learning rates and durations."""

from __future__ import annotations

import pytest

from fedopt.formatting import (
    column_formatter,
    format_duration,
    format_exponent,
    format_setting,
    is_fraction,
    metric_unit,
)


@pytest.mark.parametrize(
    ("metric", "name", "value", "text"),
    [
        ("accuracy", "accuracy", 0.7941, "79.4 %"),
        ("recall_at_5", "recall@5", 0.5, "50.0 %"),
        ("mse", "MSE × 1000", 0.01698, "16.98"),
        ("loss", "loss", 1234.56789, "1,234.5679"),
    ],
)
def test_metrics_have_a_unit(metric: str, name: str, value: float, text: str) -> None:
    unit = metric_unit(metric)
    assert (unit.name, unit.format(value)) == (name, text)


def test_values_are_formatted_with_half_width_or_three_digits() -> None:
    assert metric_unit("accuracy").format(0.5, 0.012) == "50.0 ± 1.2 %"
    assert metric_unit("accuracy").format_rounded(0.7237) == "72.4 %"
    assert metric_unit("loss").format_rounded(123456.0) == "123,000"


def test_differences_have_a_minus_sign_and_percentage_points() -> None:
    accuracy, mse = metric_unit("accuracy"), metric_unit("mse")
    assert [accuracy.format_difference(-0.0123, 0.004), accuracy.difference_unit] == ["−1.2 ± 0.4", " points"]
    assert [mse.format_difference(0.00052), mse.difference_unit] == ["0.52", ""]
    assert accuracy.format_difference(-0.0001) == "0.0"  # no negative zero


def test_fractions_are_recognised_by_name() -> None:
    assert [is_fraction(name) for name in ("accuracy", "recall_at_5", "f1", "mse", "loss")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(10**-1.5, "0.03162"), (1.0, "1"), (1e-5, "1e-05"), (True, "true"), (20, "20"), ("sgd", "sgd")],
)
def test_settings_are_formatted_as_in_toml_with_four_digits(value: object, text: str) -> None:
    assert format_setting(value) == text


def test_exponents_use_a_minus_sign_and_two_decimals() -> None:
    assert [format_exponent(rate) for rate in (10**-1.5, 0.02, 1.0)] == ["−1.5", "−1.7", "0"]


def test_smallest_value_of_a_column_keeps_three_digits() -> None:
    to_text = column_formatter([0.8123, None, 12.5])
    assert [to_text(0.8123), to_text(12.5), to_text(2e9)] == ["0.812", "12.500", "2e+09"]
    assert column_formatter([])(3.7) == "4"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (42, "42 s"), (600, "10 min"), (5400, "1.5 h"), (400_000, "4.6 days"), (4e7, "1.3 years")],
)
def test_durations_use_the_largest_suitable_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
