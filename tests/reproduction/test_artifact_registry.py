"""Selection of artifacts and tasks by name."""

from __future__ import annotations

import pytest

from fedopt.errors import UnknownName
from fedopt.reproduction.artifacts.registry import ARTIFACTS, GROUPS, parse_tasks, select_artifacts


def test_groups_contain_one_artifact_per_task() -> None:
    assert len(GROUPS["curves"]) - 1 == len(GROUPS["heatmaps"]) == 7  # curves: also all panels in one figure
    names = [artifact.name for artifact in select_artifacts("curves", ("so_lr", "cifar10"))]
    assert names == ["curves_panels", "curves_cifar10", "curves_so_lr"]
    assert {artifact.name for artifact in select_artifacts("all", parse_tasks(None))} == set(ARTIFACTS)


def test_tasks_are_in_the_papers_order() -> None:
    assert parse_tasks("so_lr, cifar10") == ("cifar10", "so_lr")


def test_unknown_artifact_names_the_closest_one() -> None:
    with pytest.raises(UnknownName, match="did you mean 'performance'") as caught:
        select_artifacts("perfomance", ("so_lr",))
    assert (caught.value.kind, caught.value.name) == ("artifact", "perfomance")


def test_artifact_without_the_given_tasks_is_an_error() -> None:
    with pytest.raises(UnknownName) as caught:
        select_artifacts("so_test", ("cifar10",))
    assert (caught.value.kind, caught.value.name) == ("task", "cifar10")
    assert caught.value.allowed == ("so_nwp", "so_lr")


@pytest.mark.parametrize(("text", "name"), [("mnist", "mnist"), (" , ", "")])
def test_unknown_or_missing_tasks_are_an_error(text: str, name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        parse_tasks(text)
    assert caught.value.name == name and set(caught.value.allowed) == set(ARTIFACTS["performance"].tasks)


def test_heat_maps_name_their_place_in_the_paper() -> None:
    assert "Section 5" in ARTIFACTS["heatmaps_so_nwp"].section
    assert ARTIFACTS["heatmaps_so_lr"].section == "Appendix, learning rate robustness"
