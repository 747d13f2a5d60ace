"""The model card of exported weights: evaluation, architecture, data, and code that loads the weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.data import Federation
from fedopt.engine.client import tensors
from fedopt.engine.problem import Problem
from fedopt.formatting import metric_unit
from fedopt.runs.evaluation import Evaluation
from fedopt.runs.records import RunRecord, flatten
from fedopt.tasks import TASKS
from fedopt.tasks.batch import call_model

EXAMPLES = 16  # that are read to find the dimensions in which examples differ
MAX_LABELS = 100  # in the table; more are listed at the end of the card


class ExampleForm(NamedTuple):
    """Type and shape of inputs, outputs and targets for one example, for example "float32 [1, 28, 28]".

    A dimension that differs between examples, such as the number of words, is "any".
    """

    inputs: str
    outputs: str
    targets: str
    first_inputs: str  # of the first example, without "any"
    labels: tuple[str, ...] = ()  # in the order of the outputs, if the data has names


def example_form(problem: Problem, federation: Federation, module: nn.Module) -> ExampleForm:
    """Read some test examples and describe what goes into the model and what comes out."""
    split, forms = federation.test, []
    for position in range(min(EXAMPLES, int(split.sizes.sum()))):
        inputs, targets = problem.prepare(tensors(split.gather(np.array([position])), slice(0, 1)), None)
        with torch.no_grad():
            outputs = call_model(module, inputs)
        forms.append((_form(inputs), _form(outputs), _form(targets)))
    inputs_form, outputs_form, targets_form = (_merge_forms(texts) for texts in zip(*forms, strict=True))
    names = federation.output_names or (() if split.labels is None else split.labels.names)
    return ExampleForm(inputs_form, outputs_form, targets_form, forms[0][0], tuple(map(str, names)))


def _form(value: Any) -> str:
    """Type and shape without the first dimension, which is the batch."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape[1:])}"
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(name)}: {_form(part)}" for name, part in value.items())
    return ", ".join(_form(part) for part in value)


def _merge_forms(forms: Sequence[str]) -> str:
    """Replace numbers in which the forms differ by "any".

    >>> _merge_forms(["int64 [21, 3]", "int64 [7, 3]"])
    'int64 [any, 3]'
    """
    words = [re.split(r"([\[\], ])", form) for form in forms]
    if len({len(parts) for parts in words}) > 1:  # other structures, such as optional inputs
        return forms[0]
    columns = zip(*words, strict=True)
    return "".join(column[0] if len(set(column)) == 1 else "any" for column in columns)


def model_card(
    record: RunRecord,
    round: int,
    module: nn.Module,
    build: Callable[..., nn.Module] | None,
    form: ExampleForm | None,
    evaluation: Evaluation | None,
) -> str:
    """Return the card as Markdown with YAML front matter.

    `build` is the importable function or class that builds the module, if there is one. `form` and
    `evaluation` are None if the data of the run cannot be read.
    """
    info = record.info
    name = _text(f"{info['task']}, {info['algorithm']}, round {round}")
    sections = [
        _front_matter(record, evaluation),
        f"# {name}\n\nTrained by federated optimization with fedopt {_text(info['fedopt'])}.",
        _evaluation_section(evaluation),
        _usage_section(record, build, form),
        _model_section(record, module, form),
        _table("## Data", {"source": _text(_describe_data(record))}),
        _table("## Training", {"command": _code(info["command"]), **_config_rows(record)}),
    ]
    if form is not None and len(form.labels) > MAX_LABELS:
        sections.append(f"## Labels\n\nIn the order of the outputs: {_text(', '.join(form.labels))}.")
    return "\n\n".join(sections) + "\n"


def _front_matter(record: RunRecord, evaluation: Evaluation | None) -> str:
    """Metadata in the format of the Hugging Face Hub. JSON values are valid YAML."""
    info = record.info
    lines = {
        "library_name": "pytorch",
        "tags": ["federated-learning", "fedopt", record.label],
        "metrics": [record.metric],
    }
    if evaluation is not None and evaluation.value is not None:
        result = {
            "task": {"type": info["task"]},
            "dataset": {"type": str(info["task"]), "name": evaluation.data, "split": evaluation.split},
            "metrics": [{"type": evaluation.metric, "value": evaluation.value}],
        }
        lines["model-index"] = [{"name": f"{info['task']}-{record.label}", "results": [result]}]  # type: ignore[list-item]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in lines.items()), "---"])


def _evaluation_section(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return "## Evaluation\n\nThe weights were not evaluated, because the data of the run cannot be read."
    unit, table = metric_unit(evaluation.metric), evaluation.table()
    rows = "\n".join(f"| {name} | {value} |" for name, value in table.rows)
    columns = f"| {_text(evaluation.split)} split | {_text(unit.name)} |"
    header = f"## Evaluation of these weights\n\n{columns}\n|---|---|\n"
    return f"{header}{rows}\n\n{table.note[0].upper()}{table.note[1:]}."


def _usage_section(
    record: RunRecord, build: Callable[..., nn.Module] | None, form: ExampleForm | None
) -> str:
    options = ", ".join(f"{key}={value!r}" for key, value in record.config.get("model", {}).items())
    lines = ["import torch", "from safetensors.torch import load_file"]
    if build is None:
        lines += ["", "model = ...  # build the module that was trained"]
    else:
        lines += [f"from {build.__module__} import {build.__qualname__}", ""]
        lines.append(f"model = {build.__qualname__}({options})")
    lines += ['model.load_state_dict(load_file("model.safetensors"))', "model.eval()"]
    if form is not None and "," not in form.first_inputs.partition("[")[0]:
        dtype, _, shape = form.first_inputs.partition(" ")
        if shape.startswith("[") and shape.count("[") == 1:
            size = ", ".join(["1", *filter(None, shape.strip("[]").split(", "))])
            lines.append(f"outputs = model(torch.zeros({size}, dtype=torch.{dtype}))")
    return "## Use\n\n```python\n" + "\n".join(lines) + "\n```"


def _model_section(record: RunRecord, module: nn.Module, form: ExampleForm | None) -> str:
    parameters = sum(parameter.numel() for parameter in module.parameters())
    facts = {"parameters": f"{parameters:,}"}
    if form is not None:
        facts |= {"input": form.inputs, "output": form.outputs, "target": form.targets}
        if form.labels:
            facts["labels"] = _text(_describe_labels(form.labels))
    if "x_sha256" in record.info:
        facts["x sha256"] = _text(record.info["x_sha256"])
    lines = [f"| {_code(name)} | {_form(value[None])} |" for name, value in module.state_dict().items()]
    weights = "\n".join(["| in model.safetensors | |", "|---|---|", *lines])
    layers = str(module)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", layers)), default=0))
    return f"{_table('## Model', facts)}\n\n{fence}\n{layers}\n{fence}\n\n{weights}"


def _describe_labels(labels: Sequence[str]) -> str:
    if len(labels) <= MAX_LABELS:
        return ", ".join(labels)
    return f"{len(labels)}: {labels[0]}, {labels[1]}, ..., {labels[-1]}; all at the end of this card"


def _describe_data(record: RunRecord) -> str:
    if record.data == "synthetic":
        return "synthetic: generated by fedopt; results are not comparable with the real data"
    return f"the user's own clients ({record.data})" if record.info["task"] not in TASKS else record.data


def _config_rows(record: RunRecord) -> dict[str, str]:
    return {_code(key): _code(value) for key, value in flatten(record.config).items()}


def _text(value: object) -> str:
    """Escape what has a meaning in Markdown or HTML.

    >>> _text("my_task, *my* <b>|")
    'my_task, &#42;my&#42; &#60;b&#62;&#124;'
    """
    special = r"[\\`*\[\]<>&|~$\r\n]|(?<![^\W_])_|_(?![^\W_])"  # _ inside of a word is plain text
    return re.sub(special, lambda match: f"&#{ord(match[0])};", str(value))


def _code(value: object) -> str:
    text = str(value)
    return f"<code>{_text(text)}</code>" if re.search(r"[\\`|\r\n]", text) else f"`{text}`"


def _table(heading: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {key} | {value} |" for key, value in rows.items()]
    return "\n".join([heading, "", "| | |", "|---|---|", *lines])
