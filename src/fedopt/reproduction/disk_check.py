"""Whether the disk holds a run whose clients keep rows: SCAFFOLD's may need more than there is."""

from __future__ import annotations

import shutil

from fedopt.engine.worker import initial_vector
from fedopt.errors import RunError
from fedopt.reproduction.cost import trial_bytes
from fedopt.reproduction.published import SCAFFOLD
from fedopt.reproduction.sources import statistics
from fedopt.reproduction.study import Spec, Study
from fedopt.runs.build_problem import build_problem
from fedopt.runs.client_table import check_disk
from fedopt.tasks import TASKS


def keeps_rows(spec: Spec) -> bool:
    """Whether clients keep something between rounds, so that the disk fills as they are visited."""
    return spec.algorithm == SCAFFOLD


def workers_with_room(study: Study, spec: Spec) -> int | RunError:
    """How many runs like `spec` fit on the disk side by side, or the error that one of them would meet.

    It is the check that a run makes before its first round, made before it is ordered: there it would end
    everything.
    """
    trial = study.trial(spec)
    config = trial.config
    problem = build_problem(TASKS[spec.task], config)
    d, keeps = len(initial_vector(problem)), len(problem.algorithm().keeps)
    population = statistics(study.source(spec.task)).train_clients
    place = trial.path if trial.path.is_dir() else study.out
    try:
        check_disk(place, config, d, keeps, population)
    except RunError as error:
        return error
    return int(shutil.disk_usage(place).free // max(1.0, trial_bytes(config, d, population)))
