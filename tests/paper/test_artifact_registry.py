"""Selection of artifacts and tasks by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reproduction_runs import make_plan

from fedopt.errors import UnknownName
from fedopt_paper.artifacts.registry import ARTIFACTS, GROUPS, parse_tasks, select_artifacts
from fedopt_paper.results import RunReader
from fedopt_paper.scales import PAPER, SMALL


def test_groups_contain_one_artifact_per_task() -> None:
    assert len(GROUPS["curves"]) - 1 == len(GROUPS["heatmaps"]) == 7  # curves: also all panels in one figure
    names = [artifact.name for artifact in select_artifacts("curves", ("so_lr", "cifar10"), PAPER)]
    assert names == ["curves_panels", "curves_cifar10", "curves_so_lr"]
    assert {artifact.name for artifact in select_artifacts("all", parse_tasks(None), PAPER)} == set(ARTIFACTS)


def test_tasks_are_in_the_papers_order() -> None:
    assert parse_tasks("so_lr, cifar10") == ("cifar10", "so_lr")


def test_unknown_artifact_names_the_closest_one() -> None:
    with pytest.raises(UnknownName, match="did you mean 'performance'") as caught:
        select_artifacts("perfomance", ("so_lr",), PAPER)
    assert (caught.value.kind, caught.value.name) == ("artifact", "perfomance")


def test_artifact_without_the_given_tasks_is_an_error() -> None:
    with pytest.raises(UnknownName) as caught:
        select_artifacts("so_test", ("cifar10",), PAPER)
    assert (caught.value.kind, caught.value.name) == ("task", "cifar10")
    assert caught.value.allowed == ("so_nwp", "so_lr")


def test_artifacts_with_sweeps_leave_out_tasks_that_have_none() -> None:
    """The scale `small` has no sweeps for CIFAR-10."""
    grid, curves = ARTIFACTS["learning_rates"], ARTIFACTS["curves_panels"]
    assert "cifar10" not in grid.tasks_at(SMALL) and "so_lr" in grid.tasks_at(SMALL)
    assert grid.tasks_at(PAPER) == grid.tasks and curves.tasks_at(SMALL) == curves.tasks
    selected = select_artifacts("heatmaps", ("cifar10", "so_lr"), SMALL)
    assert [artifact.name for artifact in selected] == ["heatmaps_so_lr"]


@pytest.mark.parametrize(
    ("name", "tasks", "message"),
    [
        ("heatmaps", ("cifar10",), "at scale small; allowed: emnist_cr, shakespeare, so_lr, emnist_ae"),
        (
            "heatmaps_cifar10",
            ("cifar10",),
            "shows sweeps of cifar10; scale small has none, so choose another --scale",
        ),
        (
            "heatmaps_cifar10",
            ("so_lr",),
            "shows sweeps of cifar10; scale small has none, so choose another --scale",
        ),
        ("heatmaps_so_lr", ("cifar10",), "none of the tasks in --tasks cifar10; allowed: so_lr"),
    ],
)
def test_artifact_without_sweeps_is_an_error(name: str, tasks: tuple[str, ...], message: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(message)):
        select_artifacts(name, tasks, SMALL)


def test_pages_name_the_tasks_that_they_leave_out(tmp_path: Path) -> None:
    note = "Not shown, because this scale has no sweeps for them: CIFAR-10, CIFAR-100, SO NWP."
    small, paper = (RunReader(make_plan(scale=scale), tmp_path) for scale in (SMALL, PAPER))
    assert note in ARTIFACTS["learning_rates"].content(small).notes
    assert not [n for n in ARTIFACTS["learning_rates"].content(paper).notes if "Not shown" in n]
    assert not [n for n in ARTIFACTS["performance"].content(small).notes if "Not shown" in n]


@pytest.mark.parametrize(("text", "name"), [("mnist", "mnist"), (" , ", "")])
def test_unknown_or_missing_tasks_are_an_error(text: str, name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        parse_tasks(text)
    assert caught.value.name == name and set(caught.value.allowed) == set(ARTIFACTS["performance"].tasks)


def test_heat_maps_name_their_place_in_the_paper() -> None:
    assert "Section 5" in ARTIFACTS["heatmaps_so_nwp"].section
    assert ARTIFACTS["heatmaps_so_lr"].section == "Appendix, learning rate robustness"
