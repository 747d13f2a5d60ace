"""The command `fedopt export`, and runs that start from exported weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from markdown_it import MarkdownIt
from pages import parse_page
from safetensors.torch import load_file, save_file
from torch import nn
from typed import FinishedRun, fedopt, files_up_to, refused, run_small, temporary_files
from written import read_lines

from fedopt import export, load, own_task, run
from fedopt.models import CharacterCNN
from fedopt.tasks.metrics import accuracy


@pytest.fixture(scope="module")
def exported(finished_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("export") / "model"
    done = fedopt("export", finished_run.path, "--to", to)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [str(to / "model.safetensors"), str(to / "MODEL_CARD.md")]
    return to


def test_exported_weights_load_into_the_module(finished_run: FinishedRun, exported: Path) -> None:
    weights = load_file(exported / "model.safetensors")
    model = CharacterCNN()
    assert set(weights) == set(model.state_dict())
    model.load_state_dict(weights, strict=True)
    vector = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert torch.equal(vector, load(finished_run.path).x)
    assert temporary_files(exported) == []


def test_model_card_names_task_data_and_command(finished_run: FinishedRun, exported: Path) -> None:
    card = (exported / "MODEL_CARD.md").read_text()
    words = ("emnist_cr", "fedavg", "round 3", "synthetic", "1,206,590", "float32 [28, 28]", "Conv2d")
    for word in (*words, "fedopt run emnist_cr", finished_run.summary["x_sha256"]):
        assert word in card
    assert "| `client.lr` | `0.1` |" in card


def test_model_card_reports_the_evaluation_of_the_exported_weights(
    finished_run: FinishedRun, exported: Path
) -> None:
    card = (exported / "MODEL_CARD.md").read_text()
    measured = json.loads(fedopt("eval", finished_run.path, "--executor", "serial", "--json").out)
    assert f"| all examples | {100 * measured['accuracy']:.1f} % |" in card
    for q, name in ((5, "client at the 5th percentile"), (50, "median client")):
        assert f"| {name} | {100 * measured['percentiles_over_clients'][str(q)]:.1f} % |" in card
    _, front, _ = card.split("---\n", 2)
    values = dict(line.split(": ", 1) for line in front.splitlines())
    (entry,) = json.loads(values["model-index"])
    assert entry["results"][0]["metrics"] == [{"type": "accuracy", "value": measured["accuracy"]}]


def test_code_of_the_model_card_loads_the_weights(
    finished_run: FinishedRun, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = (exported / "MODEL_CARD.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(exported)
    names: dict[str, Any] = {}
    exec(code, names)  # the documented code, written by this package
    assert names["outputs"].shape == (1, 62)
    vector = torch.cat([p.detach().reshape(-1) for p in names["model"].parameters()])
    assert torch.equal(vector, load(finished_run.path).x)


def test_card_of_a_model_for_texts_has_sizes_labels_and_inputs_of_any_length(tmp_path: Path) -> None:
    """The texts of different clients have different numbers of words."""
    words = (
        "--rounds",
        "1",
        "--set",
        "data.clients=10",
        "--set",
        "model.vocabulary=50",
        "--executor",
        "serial",
    )
    assert fedopt("run", "so_lr", *words, "--set", "eval.sample=20", "--out", tmp_path / "run").code == 0
    assert fedopt("export", tmp_path / "run", "--to", tmp_path).code == 0
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert "| input | int64 [any] |" in card and "TagRegression(vocabulary=50, tags=500)" in card
    assert "| `kernel` | float32 [50, 500] |" in card and "| `bias` | float32 [500] |" in card
    assert "| labels | 500: tag 0, tag 1, ..., tag 499;" in card
    assert card.rstrip().endswith("tag 498, tag 499.")


NAME = "<b>x</b> | `y` \\| *z* [w](http://attacker.example) _v_\n\n# heading"


class NamedLayers(nn.Module):
    """Every text that the user chooses has Markdown and HTML in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.ModuleDict({"`|<i>": nn.Linear(4, 2)})

    def extra_repr(self) -> str:
        return "```\n<b>x</b>"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear["`|<i>"](x)  # type: ignore[no-any-return]


def test_names_in_the_model_card_are_escaped(tmp_path: Path) -> None:
    """A Markdown renderer shows each name as it is, in one cell or heading."""
    clients = {"a": ({NAME: np.ones((4, 4), np.float32)}, np.array([0, 1, 0, 1]))}
    task = own_task(
        NamedLayers, nn.functional.cross_entropy, clients, clients["a"], name=NAME, metrics={NAME: accuracy}
    )
    run(task, rounds=1, config={"clients_per_round": 1}, out=tmp_path / "run", executor="serial")
    export(tmp_path / "run", tmp_path, task=task)
    card = (tmp_path / "MODEL_CARD.md").read_text().split("---\n", 2)[2]
    html = MarkdownIt("commonmark").enable("table").render(card)
    page = parse_page(f"<html><body>{html}</body></html>")
    assert not [*page.iter("b"), *page.iter("i"), *page.iter("a"), *page.iter("em")]
    headings = ["".join(part.itertext()) for part in page.iter("h1")]
    assert headings == [f"{NAME}, fedavg, round 1"]
    cells = {"".join(cell.itertext()) for cell in (*page.iter("td"), *page.iter("th"))}
    assert {NAME, f"{NAME}: float32 [4]", "linear.`|<i>.weight"} <= cells
    assert all(len(row) in (2, 3) for row in page.iter("tr"))
    layers = ["".join(part.itertext()) for part in page.iter("pre")]
    assert "```\n  <b>x</b>" in layers[-1]


def test_run_starts_from_exported_weights(finished_run: FinishedRun, exported: Path, tmp_path: Path) -> None:
    """Its evaluation before the first round is the exported run's last."""
    words = ("--init", exported / "model.safetensors")
    done = run_small(tmp_path / "run", *words, rounds=1)
    assert done.code == 0, done.err
    first, last = read_lines(tmp_path / "run", "test")[0], read_lines(finished_run.path, "test")[-1]
    assert (first["round"], last["round"]) == (0, 3)
    assert (first["loss"], first["accuracy"]) == (last["loss"], last["accuracy"])
    assert "finished" in run_small(tmp_path / "run", *words, rounds=1).err
    refused(
        run_small(tmp_path / "run", rounds=1), "another configuration", "init"
    )  # the weights are part of it


def test_export_to_a_read_only_place_is_refused(finished_run: FinishedRun) -> None:
    refused(fedopt("export", finished_run.path, "--to", "/dev/null/x"), "/dev/null/x", "directory")


def weights_of_another_model(file: Path) -> None:
    save_file({"layer.weight": torch.zeros(3)}, file)


def truncated_weights(file: Path) -> None:
    save_file(dict(CharacterCNN().state_dict()), file)
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize(
    "write",
    [weights_of_another_model, truncated_weights, lambda file: file.write_bytes(b"\xff" * 64), Path.mkdir],
    ids=["another model", "truncated", "garbage", "a directory"],
)
def test_damaged_initial_weights_are_refused(write: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    write(file)
    refused(run_small(tmp_path / "run", "--init", file), str(file))
    assert not (tmp_path / "run").exists()


def test_export_on_a_full_disk_leaves_no_file(finished_run: FinishedRun, tmp_path: Path) -> None:
    with files_up_to(100_000):
        refused(fedopt("export", finished_run.path, "--to", tmp_path / "out"), "model.safetensors", code=1)
    assert list((tmp_path / "out").iterdir()) == []
