"""Hyperparameter tuning: grids, trials, searches and the process pool that runs the trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedopt.lazy import lazy_names

if TYPE_CHECKING:
    from fedopt.tuning.backends import check_trial_executor
    from fedopt.tuning.runner import run_trials
    from fedopt.tuning.scores import score
    from fedopt.tuning.trials import Trial, is_finished, make_trial, read_trial

__all__ = ["Trial", "check_trial_executor", "is_finished", "make_trial", "read_trial", "run_trials", "score"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fedopt.tuning.backends": "check_trial_executor",
            "fedopt.tuning.runner": "run_trials",
            "fedopt.tuning.scores": "score",
            "fedopt.tuning.trials": "Trial is_finished make_trial read_trial",
        },
    )
