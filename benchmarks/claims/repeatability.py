"""The same command gives the same model on one CPU type, and nearly the same result on another one."""

from __future__ import annotations

from collections.abc import Mapping

from claims import markdown, rules
from claims.cpu_types import COMPARED
from claims.plan import REPEATED, REPEATED_WITH
from claims.results import EntryResult, Results, cpu_type, load_results_by_cpu
from claims.section import Section, difference, mean_interval, seed_values
from fedopt.reports import Interval
from fedopt.runs.records import LAST_ROUNDS, RunRecord
from fedopt_paper.published import METHOD_NAMES, METHODS


def repeatability(results: Results) -> Section:
    """Checksums of the same runs on other executors and after a kill, and values on other CPU types."""
    others = load_results_by_cpu() if results else {}  # without first results there is nothing to compare
    runs = _repeated_runs([results, *others.values()])
    rows = []
    for (case, cpu), records in runs.items():
        checksums = [record.info["x_sha256"] for record in records]
        rows.append(
            [*REPEATED[case][:2], str(records[0].info["rounds"]), records[0].info["machine"]["torch"]]
        )
        same = f"{checksums.count(checksums[0])} of {len(checksums)}"
        rows[-1] += [cpu, f"`{checksums[0][:16]}`", same]
    header = ["task", "algorithm", "rounds", "torch", "CPU type", "SHA-256 of x", "identical"]
    values, verdicts = compare_values(results, others)
    repeated = [result for known in others.values() for result in known.values()]
    return Section(
        "repeat",
        "Repeatability",
        {
            "checksums": markdown.table(header, rows),
            "cpu_types": values,
            "deep": compare_curves(results),
            "origin": f"Repeated: {markdown.provenance(repeated)}" if repeated else "",
        },
        {**judge_checksums(runs), **verdicts},
        "^repeat/",
    )


def _repeated_runs(sources: list[Results]) -> dict[tuple[str, str], list[RunRecord]]:
    """Return the runs of each case and CPU type, the serial ones first."""
    found: dict[tuple[str, str], list[RunRecord]] = {}
    for results in sources:
        for case in REPEATED:
            for name in REPEATED_WITH:
                result = results.get(f"repeat/{case}/{name.replace(' ', '_')}")
                for record in result.done if result else []:
                    found.setdefault((case, cpu_type(record.info["machine"])), []).append(record)
    return found


def judge_checksums(runs: Mapping[tuple[str, str], list[RunRecord]]) -> dict[str, rules.Verdict]:
    """Return a verdict for each CPU type."""
    expected, verdicts = len(REPEATED) * len(REPEATED_WITH), {}
    for cpu in dict.fromkeys(cpu for _, cpu in runs):
        checksums = {
            case: [record.info["x_sha256"] for record in records]
            for (case, type), records in runs.items()
            if type == cpu
        }
        verdicts[f"checksums on {cpu}"] = rules.judge_repeatability(checksums, expected)
    return verdicts or {"checksums": rules.not_run("runs", 0, expected)}


def compare_values(results: Results, others: Mapping[str, Results]) -> tuple[str, dict[str, rules.Verdict]]:
    """Return the table of values on two CPU types, and a verdict for each other type."""
    rows, verdicts = [], {}
    expected = sum(len(names) for names in COMPARED.values())
    for cpu, repeated in others.items():
        gaps: list[Interval | None] = []
        for data, names in COMPARED.items():
            metric = "recall_at_5" if data.startswith("tags") else "accuracy"
            for method, name in names.items():
                first, second = results.get(name), repeated.get(name)
                if first is None or second is None:
                    continue
                gap = difference(second.done, first.done)
                gaps.append(gap)
                values = [mean_interval(result.done) for result in (first, second)]
                rows.append(
                    [data, METHOD_NAMES[method], f"{first.cpu_type} and {cpu}"]
                    + [markdown.value_text(value, metric) for value in values]
                    + [markdown.difference_text(gap, metric), f"{_largest(first, second) * 100:.1f}"]
                    + [_identical(first, second)]
                )
        if gaps:  # types without long runs have checksums only
            verdicts[f"values on {cpu}"] = rules.judge_agreement(gaps, expected, f"runs on {cpu}")
    header = ["data", "method", "CPU types", "first", "second", "difference", "largest difference of a seed"]
    header.append("identical models")
    absent = {"values on another CPU type": rules.not_run("runs on another CPU type", 0, expected)}
    return markdown.table(header, rows), verdicts or absent


def compare_curves(results: Results) -> str:
    """Return the table of runs on Shakespeare that another CPU type has repeated with more rounds."""
    rows = []
    for method in METHODS:
        short, long = (results.get(f"shakespeare/{method}-0{end}") for end in ("", "-1500"))
        if not (short and long and short.done and long.done):
            continue
        if short.cpu_type == long.cpu_type or " and " in long.cpu_type:  # not computed again
            continue
        first, second = (dict(zip(*r.done[0].curve("test", "accuracy"), strict=True)) for r in (short, long))
        gaps = {round: second[round] - value for round, value in first.items() if round in second}
        ends = [value for round, value in gaps.items() if round > max(gaps) - LAST_ROUNDS]
        end = f"{sum(ends) / len(ends) * 100:+.2f}".replace("-", "−")
        largest = f"{max(map(abs, gaps.values())) * 100:.2f}"
        rows.append([METHOD_NAMES[method], f"{short.cpu_type} and {long.cpu_type}", str(max(gaps))])
        rows[-1] += [str(len(gaps)), largest, end]
    header = ["method", "CPU types", "rounds", "evaluations", "largest difference", "mean difference"]
    return markdown.table(header, rows)


def _largest(first: EntryResult, second: EntryResult) -> float:
    a, b = seed_values(first.done), seed_values(second.done)
    return max((abs(a[seed] - b[seed]) for seed in a if seed in b), default=float("nan"))


def _identical(first: EntryResult, second: EntryResult) -> str:
    """Return how many models of both results have the same checksum."""
    a, b = ({r.info["seed"]: r.info.get("x_sha256") for r in result.done} for result in (first, second))
    return f"{sum(a[seed] == b.get(seed) for seed in a)} of {len(a)}"
