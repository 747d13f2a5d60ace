"""Runs batches of work items, skips work that is already on disk, and reads the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from fedopt.engine.executors import ExecutorOptions
from fedopt.reports.progress import ProgressBar
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.runs.directory import mark_pruned
from fedopt.runs.records import mean_over_last_rounds
from fedopt.tuning.backends import open_trials
from fedopt.tuning.pool import Backend
from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.scores import search_score
from fedopt.tuning.searches import Batch, Scores
from fedopt.tuning.trials import Trial, WorkItem, is_complete, read_trial


def run_trials(
    trials: Sequence[Trial],
    executor: ExecutorOptions,
    title: str = "trials",
    after: Callable[[Trial], None] | None = None,
) -> None:
    """Run each trial for all its rounds. Trials that are finished on disk are skipped.

    Args:
        trials: the trials.
        executor: where they run.
        title: the title of the progress bar.
        after: called with each trial when it is finished, also with those that are skipped.

    Returns:
        None. The results are in the directories of the trials.

    Examples:
        >>> run_trials([], ExecutorOptions(workers=1))
    """
    longest: dict[str, Trial] = {}  # a trial that is given twice runs once
    for trial in trials:
        other = longest.get(trial.key, trial)
        longest[trial.key] = max(other, trial, key=lambda t: t.config.rounds)
    items = [WorkItem(trial, trial.config.rounds) for trial in longest.values()]
    with ProgressBar(title, total=sum(item.until for item in items)) as bar:
        progress = SweepProgress(bar, len(items))
        with open_trials(executor, progress) as backend:
            BatchRunner(backend, TRAIN_LOSS, progress, after).run(Batch(items))


class BatchRunner:
    """Runs the batches of a search with a backend."""

    def __init__(
        self,
        backend: Backend,
        select: str,
        progress: SweepProgress,
        after: Callable[[Trial], None] | None = None,
    ) -> None:
        self._backend, self._select, self._progress, self._after = backend, select, progress, after

    def run(self, batch: Batch) -> Scores:
        """Run what is missing of a batch and return the score of each item."""
        complete, missing = list[WorkItem](), list[WorkItem]()
        rounds_to_run: dict[str, int] = {}
        for item in batch.items:
            record = read_trial(item.trial)
            if record is not None and is_complete(record, item):
                complete.append(item)
                if item.until < item.trial.config.rounds:  # its process may have been killed before it did so
                    train_loss = mean_over_last_rounds(record.train, "loss", record.rounds)
                    mark_pruned(record.path, record.rounds, train_loss)
            else:
                missing.append(item)
                rounds_to_run[item.trial.key] = max(0, item.until - (record.rounds if record else 0))
        self._progress.start_batch(rounds_to_run, batch.rounds_after)
        scores = {item.trial.key: self._finish(item) for item in complete}
        with closing(self._backend.run(missing)) as finished_items:
            for item in finished_items:
                scores[item.trial.key] = self._finish(item)
        return [scores[item.trial.key] for item in batch.items]

    def _finish(self, item: WorkItem) -> float | None:
        record, value = read_trial(item.trial), search_score(item, self._select)
        self._progress.finish(item, record, value)
        if self._after is not None:
            self._after(item.trial)
        return value
