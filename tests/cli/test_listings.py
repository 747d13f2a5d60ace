"""The commands `fedopt tasks` and `fedopt algorithms`."""

from __future__ import annotations

from typed import fedopt


def test_tasks_lists_the_settings_and_rates_of_the_paper() -> None:
    done = fedopt("tasks")
    assert (done.code, done.err) == (0, "")
    for word in ("emnist_cr", "emnist_ae", "1,500", "3,000", "-1.5 -2.5 -4", "-3:0.5:0.5", "85.6"):
        assert word in done.out
    assert "SCAFFOLD" in done.out  # its default rates are FedAvg's


def test_algorithms_lists_names_and_options() -> None:
    done = fedopt("algorithms")
    assert (done.code, done.err) == (0, "")
    for word in (
        *("fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "scaffold"),
        *("fedopt", "fedprox", "adaalter", "lookahead", "centralized"),
        *("server.tau", "server.momentum", "client.option", "client.mu", "amsgrad", "adabound"),
    ):
        assert word in done.out
