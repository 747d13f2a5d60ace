"""Trials side by side: slots take orders from a search until it has none left.

What is on disk counts: a trial that was run before, to the end or until it diverged, is not run again, and
one that was killed goes on from its last checkpoint. So a sweep that is killed is continued by the same
command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import NamedTuple

from fedopt.engine.executors import available_cores
from fedopt.errors import RunError, UserError
from fedopt.sweep.progress import SweepProgress
from fedopt.sweep.searches import GridSearch, Search, window
from fedopt.sweep.slots import Answer, Ended, Order, Progress, Question, Slot
from fedopt.sweep.trials import (
    TRAIN_LOSS,
    Trial,
    is_over,
    lower_is_better,
    mark_stopped,
    recorded,
    score,
    score_so_far,
)
from fedopt.tasks import find_task

_DEATHS_PER_ORDER = 3
WORTH_SHARING = 20.0  # seconds that a trial must go on before it pays to start workers for it


def run_trials(
    trials: Sequence[Trial],
    workers: int | None = None,
    title: str = "trials",
    after: Callable[[Trial], None] | None = None,
) -> None:
    """Run those that are not over yet, each to the rounds of its configuration.

    `after` is called with each trial as soon as it is over, also with those that were over before.
    """
    longest: dict[str, Order] = {}  # one that is named twice is run once
    for trial in trials:
        order = Order(trial, trial.config.rounds)
        if order.key not in longest or longest[order.key].rounds < order.rounds:
            longest[order.key] = order
    orders = list(longest.values())
    with SweepProgress(title, len(orders), sum(order.rounds for order in orders)) as progress:
        Pool(GridSearch(orders), Judge(TRAIN_LOSS), workers, progress, after).run()


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise UserError(f"workers must be at least 1, got {workers}")


class Judge(NamedTuple):
    """How trials are scored; lower is better."""

    select: str

    def score(self, trial: Trial, round: int) -> float | None:
        """Its score after so many rounds. None: it diverged, has not come that far, or was not measured."""
        record, rounds = recorded(trial), trial.config.rounds
        if record is None:
            return None
        if round >= rounds:
            value = score(record, self.select, round)
        else:
            value = score_so_far(record, self.select, round, window(round, rounds))
        sign = 1 if lower_is_better(find_task(trial.config.task), self.select) else -1
        return None if value is None else sign * value


class Pool:
    """Runs what a search orders on `workers` slots, one per core by default."""

    def __init__(
        self,
        search: Search,
        judge: Judge,
        workers: int | None,
        progress: SweepProgress,
        after: Callable[[Trial], None] | None = None,
    ) -> None:
        check_workers(workers)
        self._search, self._judge, self._progress, self._after = search, judge, progress, after
        self._slots = [Slot() for _ in range(workers or available_cores())]
        self._deaths: dict[str, int] = {}

    def run(self) -> None:
        """Returns when the search has nothing more to order and everything has ended."""
        try:
            while True:
                self._hand_out()
                busy = {slot.connection: slot for slot in self._slots if slot.order is not None}
                if not busy:
                    return
                self._share(list(busy.values()))
                for connection in wait(list(busy), timeout=1.0):
                    self._hear(busy[connection])  # type: ignore[index]
                self._progress.refresh()
        finally:
            for slot in self._slots:  # all at once: the next interrupt may come while one is awaited
                slot.hang_up()
            for slot in self._slots:
                slot.stop()

    def _hand_out(self) -> None:
        """Give every free slot something to do, as long as there is something."""
        for slot in self._slots:
            while slot.order is None:
                order = self._search.next()
                if order is None:
                    return
                if not self._is_known(order):
                    self._progress.started(order)
                    slot.begin(order)

    def _is_known(self, order: Order) -> bool:
        """Whether what is on disk answers an order; the search is told as if it had been run."""
        record = recorded(order.trial)
        if record is None:
            return False
        for round in order.asks:
            if round > record.rounds:
                break
            if not self._search.goes_on(order.trial, round, self._judge.score(order.trial, round)):
                mark_stopped(record)
                self._ended(order, ran=False)
                return True
        if is_over(record, order.rounds):
            self._ended(order, ran=False)
            return True
        return False

    def _share(self, busy: Sequence[Slot]) -> None:
        """Give cores that have nothing to do to the trial that will take longest."""
        idle = len(self._slots) - sum(slot.workers for slot in busy)
        if idle < 1 or self._search.waiting():
            return
        longest = max(busy, key=Slot.seconds_left)
        if longest.seconds_left() > WORTH_SHARING:
            longest.widen(1 + idle)

    def _hear(self, slot: Slot) -> None:
        """Take what a slot says."""
        order = slot.order
        assert order is not None
        try:
            message = slot.connection.recv()
        except (EOFError, OSError):
            return self._again(slot, order)
        if isinstance(message, Progress):
            slot.advanced(message.round)
            self._progress.advanced(order, message.round)
        elif isinstance(message, Question):
            asked = self._judge.score(order.trial, message.round)
            slot.send(Answer(self._search.goes_on(order.trial, message.round, asked)))
        elif isinstance(message, Ended):
            slot.order = None
            if isinstance(message.failure, RunError):
                raise RunError(f"{message.failure}; finished trials are kept, the same command goes on")
            if message.failure is not None:
                raise message.failure
            self._ended(order, ran=True)

    def _again(self, slot: Slot, order: Order) -> None:
        """A slot has died, perhaps for want of memory: a new one goes on from the last checkpoint."""
        code = slot.stop()
        self._deaths[order.key] = self._deaths.get(order.key, 0) + 1
        if self._deaths[order.key] == _DEATHS_PER_ORDER:
            raise RunError(
                f"the process of {order.key} died {_DEATHS_PER_ORDER} times (exit code {code}); is there "
                "enough memory?"
            )
        slot.order = None
        if not self._is_known(order):
            slot.begin(order)

    def _ended(self, order: Order, ran: bool) -> None:
        record = recorded(order.trial)
        status = "" if record is None else record.status
        value = self._judge.score(order.trial, order.rounds)
        self._progress.ended(order, status, value, ran)
        self._search.finished(order, value)
        if self._after is not None:
            self._after(order.trial)
