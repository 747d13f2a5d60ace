"""How a cohort is divided into pieces of work for the slots of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from fedopt.engine.executors.ray.pieces import split_blocks, split_cohort, split_evaluation


def jobs(count: int) -> Any:
    return list(range(count))


def flat(blocks: Any) -> list[int]:
    return [job for block in blocks for piece in block for job in piece.jobs]


@pytest.mark.parametrize("slots", [1, 2, 3, 50, 1000])
@pytest.mark.parametrize("cohort", [1, 8, 10, 50, 1000])
def test_pieces_keep_the_order_and_the_blocks_of_eight(cohort: int, slots: int) -> None:
    blocks = split_cohort(jobs(cohort), [3] * cohort, slots)
    assert flat(blocks) == jobs(cohort)
    assert [sum(len(piece.jobs) for piece in block) for block in blocks[:-1]] == [8] * ((cohort - 1) // 8)
    for block in blocks:
        assert len(block) == 1 if block[0].is_block else all(len(piece.jobs) == 1 for piece in block)


def test_small_cohort_is_trained_client_by_client() -> None:
    """With ten clients on two slots, two blocks would take eight and two units of time."""
    pieces = [piece for block in split_cohort(jobs(10), [1] * 10, 2) for piece in block]
    assert len(pieces) == 10


def test_number_of_answers_grows_with_blocks_in_large_cohorts() -> None:
    """With 10,000 equal clients on ten slots, the last ten blocks are trained client by client."""
    blocks = split_cohort(jobs(10_000), [1] * 10_000, 10)
    assert sum(len(block) for block in blocks) == 1250 - 9 + 9 * 8


def test_number_of_answers_is_limited_on_a_thousand_slots() -> None:
    """The last 256 clients are trained one by one, and 1,218 blocks as a whole."""
    blocks = split_cohort(jobs(10_000), [1] * 10_000, 1000)
    assert sum(len(block) for block in blocks) == 1218 + 256


def test_block_of_large_clients_is_not_given_to_one_slot() -> None:
    """The first eight clients have nine tenths of the work."""
    steps = [90] * 8 + [1] * 80
    assert not split_cohort(jobs(88), steps, 2)[0][0].is_block


def test_one_slot_trains_whole_blocks() -> None:
    assert all(block[0].is_block for block in split_cohort(jobs(10), [1] * 10, 1))
    assert all(block[0].is_block for block in split_blocks(jobs(20), [1] * 20))


def test_pieces_have_the_work_of_their_clients() -> None:
    blocks = split_cohort(jobs(24), list(range(24, 0, -1)), 2)
    assert sum(piece.steps for block in blocks for piece in block) == 24 * 25 // 2


def test_evaluations_are_divided_in_order() -> None:
    pieces = split_evaluation(jobs(1000), 4)
    assert [job for piece in pieces for job in piece.jobs] == jobs(1000)
    assert max(len(piece.jobs) for piece in pieces) <= 32 and len(pieces[-1].jobs) == 1
