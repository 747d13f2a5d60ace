"""The table of a benchmark result."""

from __future__ import annotations

from speed.result_table import executor_rows, markdown_lines, table_notes, table_rows

NUMBERS = {
    "seconds": 2.0,
    "seconds_range": [1.5, 2.5],
    "rounds_per_s": 0.5,
    "steps_per_s": 50.0,
    "gemm_share": 0.8,
    "engine_share": 0.125,
    "peak_memory_mb": None,
    "executors": {"processes": {"seconds": 2.0, "seconds_range": [1.5, 2.5], "rounds_per_s": 0.5}},
    "cut": "16 of 50 clients",
    "ratio": {"pfl": 2.5},
    "ratio_range": {"pfl": [2.25, 2.75]},
    "peers": {"pfl": {"versions": {"pfl": "0.6.0"}, "settings": "2 processes"}},
}
RESULT = {
    "date": "2026-11-16T10:00+00:00",
    "commit": "abc1234",
    "machine": {"cpu": "CPU", "cores": 2, "system": "Linux", "python": "3.11", "torch": "2.13"},
    "workers": 2,
    "tasks": {
        "so_nwp": NUMBERS,
        "so_lr": NUMBERS
        | {"ratio": {}, "ratio_range": {}, "cut": None, "peers": {}, "peak_memory_mb": 1700.0},
    },
}


def test_table_marks_shortened_rounds_and_absent_peers():
    header, rows = table_rows(RESULT)
    assert header[-1] == "x pfl"
    assert rows[0] == ["so_nwp*", "2 s (1.5-2.5)", "0.5", "50", "80%", "12.5%", "-", "2.50 (2.25-2.75)"]
    assert rows[1][0] == "so_lr" and rows[1][-2:] == ["1,700 MB", "absent"]
    assert table_notes(RESULT)[-1].endswith("so_nwp: 16 of 50 clients.")


def test_markdown_names_commit_machine_and_settings_of_peers():
    lines = markdown_lines(RESULT)
    assert lines[0] == "2026-11-16, commit abc1234, CPU with 2 cores, Linux, Python 3.11, torch 2.13."
    assert lines[4].startswith("| so_nwp\\* | 2 s (1.5-2.5) |")
    assert lines[-1] == "- pfl: pfl 0.6.0; 2 processes (so_nwp)."


def test_markdown_lists_a_peer_with_two_settings_once():
    other = NUMBERS | {"peers": {"pfl": {"versions": {"pfl": "0.6.0"}, "settings": "4 threads"}}}
    lines = markdown_lines(RESULT | {"tasks": {"so_nwp": NUMBERS, "so_lr": other}})
    assert [line for line in lines if line.startswith("- pfl")] == [
        "- pfl: pfl 0.6.0; 2 processes (so_nwp); 4 threads (so_lr)."
    ]


def test_executors_of_a_small_workload_have_their_own_table():
    times = {"seconds": 0.001, "seconds_range": [0.001, 0.002], "rounds_per_s": 1000.0}
    executors = {"compiled": times, "serial": times | {"seconds": 0.01, "rounds_per_s": 100.0}}
    peers = {"fedjax": {"versions": {}, "settings": "jit", "seconds": 0.005}}
    small = NUMBERS | {"executors": executors, "peers": peers, "engine_share": None}
    header, rows = executor_rows(RESULT | {"tasks": {"so_lr": NUMBERS, "small_lr": small}})
    assert header == ["task", "executor", "round", "rounds/s", "x fedjax"]
    assert rows == [
        ["small_lr", "compiled", "1 ms (1-2)", "1e+03", "5.00"],
        ["small_lr", "serial", "10 ms (1-2)", "100", "0.50"],
    ]
    assert executor_rows(RESULT)[1] == []
