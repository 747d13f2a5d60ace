"""Labels of configurations."""

from __future__ import annotations

from pathlib import Path

from written import write_run, write_trial

from fedopt.reports.seeds import configuration_labels, differing_settings


def test_configurations_of_one_algorithm_have_different_labels(tmp_path: Path) -> None:
    plain, other = write_run(tmp_path / "plain"), write_run(tmp_path / "other")
    assert configuration_labels([plain, write_run(tmp_path / "adam", "fedadam")]) == ["fedavg", "fedadam"]
    assert configuration_labels([plain, other]) == ["fedavg (plain)", "fedavg (other)"]
    assert configuration_labels([plain, plain]) == ["fedavg (plain) #1", "fedavg (plain) #2"]
    real = write_run(tmp_path / "real", data="femnist")
    assert configuration_labels([plain, real]) == ["fedavg on synthetic", "fedavg on femnist"]


def test_trials_of_a_grid_are_labelled_by_their_rates(tmp_path: Path) -> None:
    points = [(0.1, 1.0, 1e-3), (10**-1.5, 1.0, 1e-5), (0.1, 0.1, 1e-3)]
    trials = [write_trial(tmp_path / f"hash{at}", "fedadam", p) for at, p in enumerate(points)]
    assert configuration_labels(trials) == [
        "fedadam (client.lr 0.1, server.lr 1, server.tau 0.001)",
        "fedadam (client.lr 0.03162, server.lr 1, server.tau 1e-05)",
        "fedadam (client.lr 0.1, server.lr 0.1, server.tau 0.001)",
    ]


def test_repeated_configurations_are_numbered(tmp_path: Path) -> None:
    trials = [write_trial(tmp_path / str(at), rates=(rate, 1.0)) for at, rate in enumerate((0.1, 0.1, 1.0))]
    labels = ["fedavg (client.lr 0.1) #1", "fedavg (client.lr 0.1) #2", "fedavg (client.lr 1)"]
    assert configuration_labels(trials) == labels


def test_many_differing_settings_are_replaced_by_the_directory_name(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, config="\n".join(f"{key} = {at}" for key in "abcd"))
        for at, name in enumerate(("first", "second"))
    ]
    assert configuration_labels(runs) == ["fedavg (first)", "fedavg (second)"]


def test_seed_rounds_and_implied_settings_do_not_differ(tmp_path: Path) -> None:
    one = write_trial(tmp_path / "a", rates=(0.1, 1.0, 1e-3), seed=0, settings={"rounds": 4})
    two = write_trial(tmp_path / "b", rates=(0.1, 1.0, 1e-1), seed=1, settings={"rounds": 9})
    assert differing_settings([one, two]) == {"server.tau": [1e-3, 1e-1]}
