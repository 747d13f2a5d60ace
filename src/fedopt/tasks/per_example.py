"""Losses that are known to have a value for each example, independent of the other examples of the batch."""

from __future__ import annotations

from functools import partial

from fedopt.tasks.base import Loss
from fedopt.tasks.metrics import cross_entropy, squared_error
from fedopt.tasks.text_metrics import tag_loss, token_loss

_PER_EXAMPLE = (cross_entropy, squared_error, tag_loss, token_loss)


def is_per_example(loss: Loss) -> bool:
    """Return whether `loss` is one of the per-example losses of this package. Unknown losses are not.

    >>> is_per_example(cross_entropy), is_per_example(partial(token_loss, masked=True))
    (True, False)
    """
    function, options = (loss.func, loss.keywords) if isinstance(loss, partial) else (loss, {})
    return any(function is known for known in _PER_EXAMPLE) and not options.get("masked", False)
