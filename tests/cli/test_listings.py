"""The commands `fedopt tasks` and `fedopt algorithms`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from typed import fedopt

from fedopt.cli.listings import print_tasks


def test_tasks_lists_the_settings_and_rates_of_the_paper() -> None:
    done = fedopt("tasks")
    assert (done.code, done.err) == (0, "")
    for word in ("emnist_cr", "emnist_ae", "1,500", "3,000", "-1.5 -2.5 -4", "-3:0.5:0.5", "85.6"):
        assert word in done.out
    assert "SCAFFOLD" in done.out  # its default rates are FedAvg's


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_of_tasks_show_full_names_at_any_width(width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        print_tasks(console)
    lines = capture.get().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    text = "\n".join(lines)
    assert "…" not in text
    for word in ("shakespeare", "fedadagrad", "fedavgm", "recall@5 %", "-1.5 -2.5 -4", "-1.5:2:0.5"):
        assert word in text


def test_algorithms_lists_names_and_options() -> None:
    done = fedopt("algorithms")
    assert (done.code, done.err) == (0, "")
    for word in (
        *("fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "scaffold"),
        *("fedopt", "fedprox", "adaalter", "lookahead", "centralized"),
        *("server.tau", "server.momentum", "client.option", "client.mu", "amsgrad", "adabound"),
    ):
        assert word in done.out
