"""`fedopt bench`: the work is counted right, is the same for all sides, and the numbers have their form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fedopt.algorithms import Round
from fedopt.bench import command
from fedopt.bench.clock import CALLS, PASSES, clocked, spent
from fedopt.bench.document import Block
from fedopt.bench.gemm import Products
from fedopt.bench.measure import compare_first_round
from fedopt.bench.memory import Peak, family
from fedopt.bench.peers import PEERS, Absent, Peer, Side, find, parse_peers
from fedopt.bench.products import LAYERS, Product, multiply_adds, products
from fedopt.bench.work import Work, make_work
from fedopt.cli.app import app
from fedopt.engine.aggregate import BlockedMean
from fedopt.engine.worker import ClientJob, Runner, single_thread
from fedopt.errors import UserError
from fedopt.models.flat import Flat
from fedopt.tasks import TASKS

ROOT = Path(__file__).resolve().parents[2]
SIDES = ROOT / "benchmarks" / "peers"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"

# Multiply-adds of one example: forward, and those of the first layer where its inputs are data, for which
# backward has one product less than two.
_CNN = 26 * 26 * 32 * 9, 24 * 24 * 64 * 288, 9216 * 128, 128 * 62
_AE = 784 * 1000, 1000 * 500, 500 * 250, 250 * 30, 30 * 250, 250 * 500, 500 * 1000, 1000 * 784
_STAGES = (
    4 * 36 * 64 * 576,
    36 * 128 * 576 + 3 * 36 * 128 * 1152 + 36 * 64 * 128,
    36 * 256 * 1152 + 3 * 36 * 256 * 2304 + 36 * 128 * 256,
    36 * 512 * 2304 + 3 * 36 * 512 * 4608 + 36 * 256 * 512,
)
_STEM = 12 * 12 * 64 * 147
BY_HAND = {
    "emnist_cr": (sum(_CNN), _CNN[0]),
    "emnist_ae": (sum(_AE), _AE[0]),
    "cifar10": (_STEM + sum(_STAGES) + 512 * 10, _STEM),
    "cifar100": (_STEM + sum(_STAGES) + 512 * 100, _STEM),
    "shakespeare": (80 * (8 * 1024 + 256 * 1024 + 2 * 256 * 1024 + 256 * 90), 0),
    "so_nwp": (20 * (96 * 2680 + 670 * 2680 + 670 * 96 + 96 * 10_004), 0),
    "so_lr": (10_000 * 500, 10_000 * 500),
}


@pytest.mark.parametrize("task", TASKS)
def test_the_products_of_a_step_are_those_counted_by_hand(task):
    forward, first = BY_HAND[task]
    for batch in (1, 20):
        found = products(task, batch)
        assert sum(p.multiply_adds for p in found if p.of == "outputs") == batch * forward
        assert sum(p.multiply_adds for p in found if p.of == "weight") == batch * forward
        assert sum(p.multiply_adds for p in found if p.of == "inputs") == batch * (forward - first)
        assert multiply_adds(task, batch) == batch * (3 * forward - first)


def test_the_second_convolution_is_one_product_of_unfolded_images():
    assert products("emnist_cr", 20)[2:5] == [
        Product("outputs", 20 * 24 * 24, 288, 64),
        Product("weight", 64, 20 * 24 * 24, 288),
        Product("inputs", 20 * 24 * 24, 64, 288),
    ]


def test_an_lstm_multiplies_its_state_step_by_step_and_its_weights_gradient_at_once():
    assert products("shakespeare", 4)[3:6] == [
        Product("outputs", 4, 256, 1024, times=80),
        Product("weight", 1024, 4 * 80, 256),
        Product("inputs", 4, 1024, 256, times=80),
    ]


@pytest.mark.parametrize("task", TASKS)
def test_every_matrix_of_a_model_has_its_products(task):
    """An embedding is looked up, not multiplied."""
    matrices = {name: p for name, p in TASKS[task].model().named_parameters() if p.ndim > 1}
    matrices.pop("embedding.weight", None)
    assert sum(layer.inputs * layer.outputs for layer in LAYERS[task]) == sum(
        p.numel() for p in matrices.values()
    )


def test_products_are_timed_in_processes_that_end():
    before = set(family(os.getpid()))
    with Products([Product("outputs", 8, 16, 4), Product("weight", 4, 8, 16, times=2)], workers=1) as rate:
        assert 0 < rate.step_seconds() < 1
        assert set(family(os.getpid())) - before
    time.sleep(0.2)
    ours = set(family(os.getpid())) - before
    assert not {pid for pid in ours if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell")
def test_the_peak_of_memory_holds_what_a_child_had_and_gave_back():
    code = "import time; a = bytearray(96 << 20); a[::4096] = b'x' * len(a[::4096]); time.sleep(0.5); del a"
    with subprocess.Popen([sys.executable, "-c", code + "; time.sleep(0.3)"]) as child:
        with Peak(child.pid) as peak:
            child.wait()
    assert peak.megabytes is not None and 96 < peak.megabytes < 200


# -- the same work on all sides


@pytest.fixture(scope="module")
def sides():
    """The modules that the peers' sides share, imported as they import them."""
    sys.path.insert(0, str(SIDES))
    try:
        import side
        import torch_networks

        yield side, torch_networks
    finally:
        sys.path.remove(str(SIDES))


def first_round(work: Work) -> torch.Tensor:
    """x after the engine's first round of plain FedAvg with a server rate of 1."""
    runner = Runner(work.problem, work.problem.federation(), ())
    mean = BlockedMean()
    with single_thread():
        for client in range(len(work.examples)):
            round = Round(0, work.client_lr, 1.0, len(work.examples), len(work.examples))
            outcome, vectors = runner.run(ClientJob(round, client), (work.x,), None)
            mean.add(outcome.weight, vectors, outcome.part)
    value = mean.value()
    assert value is not None
    return work.x + value[0]


def peer_round(sides, directory: Path) -> None:
    """The same round by plain PyTorch on the files that are handed over."""
    side, networks = sides
    work = side.read_work(str(directory), "1")
    start, total = work.parameters(), {}
    examples = sum(len(targets) for _, targets in work.cohort)
    with single_thread():
        for inputs, targets in work.cohort:
            model = networks.network(work.task, start)
            optimizer = torch.optim.SGD(model.parameters(), work.settings["client_lr"])
            size = work.settings["batch_size"]
            for at in range(0, len(targets), size):
                optimizer.zero_grad()
                rows = slice(at, at + size)
                outputs = model(torch.from_numpy(inputs[rows]))
                networks.loss_of(work.task, outputs, torch.from_numpy(targets[rows])).backward()
                optimizer.step()
            for name, p in model.named_parameters():
                part = p.detach().numpy() * (len(targets) / examples)
                total[name] = total.get(name, 0) + part
    work.write_x("plain", total)


@pytest.mark.parametrize("task", [name for name in TASKS if name != "cifar100"])
def test_what_is_handed_over_trains_to_the_same_model(task, sides, tmp_path):
    work = make_work(task, tmp_path, clients=1 if task == "cifar10" else 2, steps=1)
    ours = first_round(work)
    peer_round(sides, tmp_path)
    compared = compare_first_round(work, ours, tmp_path / "plain_x.npy")
    if task != "emnist_cr":  # its dropout draws other masks
        assert compared["distance"] < 1e-4
    assert json.loads((tmp_path / "work.json").read_text())["count"] == sum(
        p.numel() for p in TASKS[task].model().parameters()
    )


def test_written_out_bags_give_the_same_tags(sides):
    _, networks = sides
    words = torch.tensor([[3, 3, 10_001, 0], [10_000, 1, 2, 7], [0, 0, 0, 0]])
    few, all_columns = networks.TagRegression(), networks.WrittenOutTagRegression()
    with torch.no_grad():
        few.kernel.normal_(generator=torch.Generator().manual_seed(0))
        all_columns.kernel.copy_(few.kernel)
    torch.testing.assert_close(few(words), all_columns(words), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def small_work(tmp_path_factory) -> Work:
    return make_work("emnist_ae", tmp_path_factory.mktemp("work"), clients=2, steps=1)


def test_work_is_shortened_equally_and_says_so(small_work):
    assert small_work.examples == (20, 20) and small_work.steps == (1, 1)
    assert small_work.cut == "2 of 10 clients, at most 1 steps a client"
    assert small_work.multiply_adds == 40 * (3 * sum(_AE) - _AE[0])


def test_the_cohort_is_the_same_every_time(small_work, tmp_path):
    again = make_work("emnist_ae", tmp_path, clients=2, steps=1)
    assert (tmp_path / "work.json").read_text() == (small_work.directory / "work.json").read_text()
    with np.load(tmp_path / "raw.npz") as a, np.load(small_work.directory / "raw.npz") as b:
        assert a.files == b.files and all(np.array_equal(a[name], b[name]) for name in a.files)
    assert torch.equal(again.x, small_work.x)


def test_a_round_of_other_work_gives_no_number(small_work, tmp_path):
    ours = first_round(small_work)
    still, short = tmp_path / "still.npy", tmp_path / "short.npy"
    np.save(still, small_work.x.numpy())
    np.save(short, small_work.x.numpy()[:-1])
    with pytest.raises(Absent, match="not the same work"):
        compare_first_round(small_work, ours, still)
    with pytest.raises(Absent, match="2,837,313 parameters .* and ours 2,837,314"):
        compare_first_round(small_work, ours, short)
    with pytest.raises(Absent, match="left no model"):
        compare_first_round(small_work, ours, tmp_path / "none.npy")


def test_a_clock_around_a_client_changes_nothing_and_sees_its_passes(small_work, tmp_path):
    problem = clocked(small_work.problem, tmp_path)
    plain, timed = (Runner(one, one.federation(), ()) for one in (small_work.problem, problem))
    round = Round(0, small_work.client_lr, 1.0, 2, 2)
    with single_thread():
        expected = plain.run(ClientJob(round, 0), (small_work.x,), None)[1][0]
        start = time.perf_counter()
        found = timed.run(ClientJob(round, 0), (small_work.x,), None)[1][0]
        seconds = time.perf_counter() - start
    assert torch.equal(expected, found)
    seen = spent(tmp_path, 0)
    assert seen.of in (PASSES, CALLS)
    assert seen.computing is not None and 0 < seen.computing < seen.clients < seconds
    assert spent(tmp_path, 1).computing is None  # a round that was not


# -- peers


def test_peers_are_named_with_commas():
    assert parse_peers(None) == list(PEERS) and parse_peers("") == []
    with pytest.raises(UserError, match=r"unknown peer 'fedjx' \(did you mean 'fedjax'\?\); allowed: pfl, "):
        parse_peers("pfl,fedjx")


def test_a_peer_that_is_not_installed_says_how_to_install_it(tmp_path):
    with pytest.raises(Absent, match="python benchmarks/peers/setup.py flower"):
        find("flower", tmp_path / "benchmarks" / "peers")
    with pytest.raises(Absent, match="run this command there"):
        find("flower", None)


def scripted(directory: Path, code: str) -> Side:
    script = directory / "run.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(SIDES)!r})\n{code}")
    return Side("scripted", script, Path(sys.executable))


def test_a_peer_does_a_round_for_every_request_and_ends_with_its_input(tmp_path):
    code = """
from side import Voice, serve
done = []
voice = Voice()
print("this is not for fedopt")
serve(voice, lambda: done.append(1), lambda: None, settings="none")
open(sys.argv[1] + "/done", "w").write(str(len(done)))
"""
    peer = Peer(scripted(tmp_path, code), tmp_path, 2)
    assert peer.ready["settings"] == "none"
    assert [peer.round() >= 0 for _ in range(3)] == [True] * 3
    peer.close()
    assert (tmp_path / "done").read_text() == "4"  # one before anything was asked for


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ValueError('no luck')", r"its process ended \(ValueError: no luck\)"),
        ("from side import Voice; Voice().absent('there is no such task')", "there is no such task"),
        ("print('hello', flush=True); import time; time.sleep(60)", "said b'hello'"),
    ],
)
def test_a_peer_that_fails_is_absent_with_the_reason(tmp_path, code, reason):
    with pytest.raises(Absent, match=reason):
        Peer(scripted(tmp_path, code), tmp_path, 1)


# -- the command


def fedopt(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedopt", *words], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_a_small_run_prints_one_object_and_names_absent_peers(tmp_path):
    (tmp_path / "benchmarks" / "peers").mkdir(parents=True)
    (tmp_path / "benchmarks" / "peers" / "setup.py").write_text("")  # a repository without environments
    (tmp_path / "page.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    small = ["--clients", "2", "--steps", "1", "--repeats", "2", "--workers", "1", "--against", "pfl"]
    done = fedopt("bench", "emnist_ae", *small, "--write", "page.md", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result["tasks"]) == ["emnist_ae"]
    numbers = result["tasks"]["emnist_ae"]
    assert numbers["ratio"] == {} and numbers["peers"] == {}
    assert numbers["absent"] == {"pfl": "not installed; python benchmarks/peers/setup.py pfl"}
    assert done.stderr.count("python benchmarks/peers/setup.py pfl") == 1
    assert numbers["rounds_per_s"] == pytest.approx(1 / numbers["seconds"])
    assert numbers["steps_per_s"] == pytest.approx(2 / numbers["seconds"])
    assert (numbers["steps_per_client"], numbers["examples_per_client"]) == ([1, 1], [20, 20])
    assert numbers["cut"] and numbers["repeats"] == 2 and numbers["peak_memory_kind"] == "PSS"
    low, high = numbers["gemm_share_range"]
    assert 0 < low <= numbers["gemm_share"] <= high
    assert 0 < numbers["waiting_share"] < numbers["engine_share"] < 1
    page = (tmp_path / "page.md").read_text()
    assert page.startswith(f"before\n{BEGIN}\n") and page.endswith(f"\n{END}\nafter\n")
    assert "| emnist_ae\\* |" in page and "old" not in page


def test_an_unknown_peer_is_one_line():
    done = fedopt("bench", "--against", "tff", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown peer 'tff'; allowed: pfl, fedjax, flower\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["emnist"], "unknown task 'emnist'"),
        (["so_lr", "--repeats", "0"], "--repeats must be 1 or more, got 0"),
        (["so_lr", "--steps", "-1"], "--steps must be 1 or more, got -1"),
        (["so_lr", "--write", "none.md"], "--write none.md cannot be read"),
    ],
)
def test_a_mistake_is_found_before_anything_is_measured(words, line):
    with pytest.raises(UserError, match=f"^{line}"):
        app(["bench", *words], standalone_mode=False)


def test_the_table_names_what_was_cut_and_what_is_absent():
    numbers = {
        "seconds": 2.0,
        "seconds_range": [1.5, 2.5],
        "rounds_per_s": 0.5,
        "steps_per_s": 50.0,
        "gemm_share": 0.8,
        "engine_share": None,
        "peak_memory_mb": 700.0,
        "cut": "16 of 50 clients",
        "ratio": {"pfl": 2.5},
        "ratio_range": {"pfl": [2.25, 2.75]},
        "peers": {},
    }
    other = numbers | {"ratio": {}, "ratio_range": {}, "cut": None}
    result = {"workers": 2, "tasks": {"so_nwp": numbers, "so_lr": other}}
    head, found = command.rows(result)
    assert head[-1] == "x pfl"
    assert found[0] == ["so_nwp*", "2 s (1.5-2.5)", "0.5", "50", "80%", "-", "700 MB", "2.50 (2.25-2.75)"]
    assert found[1][0] == "so_lr" and found[1][-1] == "absent"
    assert command.notes(result)[-1].endswith("so_nwp: 16 of 50 clients")


def test_all_peers_have_a_side_with_pinned_requirements():
    for name in PEERS:
        lines = (SIDES / name / "requirements.txt").read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert (SIDES / name / "run.py").is_file() and pins
        assert all("==" in line for line in pins)
        assert "torch==2.13.0" in pins or name == "fedjax"
    assert "torch==2.13.0" in (SIDES / "constraints.txt").read_text()


def test_the_readme_holds_the_block_that_write_replaces():
    Block(ROOT / "benchmarks" / "README.md", "bench")
    Block(ROOT / "docs" / "performance.md", "growth")
    Block(ROOT / "docs" / "performance.md", "fast paths")


def test_flat_order_is_the_order_of_the_peers_parameters(sides):
    _, networks = sides
    for task in TASKS:
        flat = Flat(TASKS[task].model())
        theirs = [(name, p.shape) for name, p in networks.NETWORKS[task]().named_parameters()]
        assert sorted(theirs) == sorted(zip(flat.names, flat.shapes, strict=True))
