"""The algorithms on clients whose gradients are known exactly."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest
import torch
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Client, Toy, bowl, play, vector

from fedopt.algorithms import (
    ALGORITHMS,
    OPTIMIZERS,
    VARIANTS,
    Round,
    adaalter,
    adam,
    build,
    centralized,
    fedopt,
    fedprox,
    keywords,
    lookahead,
    scaffold,
    sgd,
)

quick = settings(deadline=None, derandomize=True, max_examples=40)
CLIENTS = toy.federation()
START = torch.zeros(3)
# Rates that suit the toy federation; None is AdaAlter, whose roots start at sqrt(1 + 1) and grow.
ETA_L = {"sgd": 0.05, "sgdm": 0.02, "adagrad": 0.05, "adam": 0.03, "yogi": 0.03, None: 0.5}
ETA = {"sgd": 1.0, "sgdm": 0.2, "adagrad": 0.3, "adam": 0.1, "yogi": 0.1}


def one_round(eta_l: float, t: int = 0, eta: float = 1.0) -> Round:
    return Round(t, eta_l, eta, cohort=1, population=1)


# FedOpt


def test_fedopt_with_sgd_and_rate_one_averages_the_models():
    """x_{t+1} = sum_i n_i x_i / n: McMahan et al.'s FedAvg, here in float64."""
    x, weights = np.zeros(3), [c.examples for c in CLIENTS]
    for _ in range(3):
        models = []
        for client in CLIENTS:
            x_i = x
            for b in client.data:
                x_i = x_i - 0.1 * (b.H.double().numpy() @ x_i - b.h.double().numpy())
            models.append(x_i)
        x = np.average(models, axis=0, weights=weights)
    played = play(fedopt(sgd(), sgd()), CLIENTS, START, 3, eta_l=0.1)
    np.testing.assert_allclose(played.x.numpy(), x, rtol=1e-5, atol=1e-6)


def test_fedopt_runs_all_epochs_and_applies_the_server_rate():
    """f = (x - 4)^2 / 2, two epochs of one batch at eta_l = 1/2: 0, 2, 3; then x = 0 + 2 (3 - 0)."""
    assert (
        play(fedopt(sgd(), sgd()), [Client((bowl(1, 4),), epochs=2)], vector(0), 1, eta_l=0.5, eta=2).x == 6
    )


@pytest.mark.parametrize(("client", "server"), list(product(ETA, ETA)))
def test_every_pair_of_optimizers_lowers_the_objective(client, server):
    algorithm = fedopt(OPTIMIZERS[client](), OPTIMIZERS[server]())
    played = play(algorithm, CLIENTS, START, 60, eta_l=ETA_L[client], eta=ETA[server])
    assert toy.excess(CLIENTS, played.x) < 0.05 * toy.excess(CLIENTS, START)


def test_client_optimizer_starts_anew_and_server_counts_rounds():
    keras = adam(bias_correction=True, first_step=1, initial_accumulator=0.0, tau=2.0)
    on_client = fedopt(keras, sgd())
    first, later = (on_client.client(Toy(CLIENTS[3].data, one_round(0.1, t)), START) for t in (0, 7))
    assert torch.equal(first.returns[0], later.returns[0])
    # On the server the third round has s = 3; from m = v = 0, Delta = 20 gives m = 2, v = 4: R 2/(2+2).
    on_server = fedopt(sgd(), keras)
    state = on_server.server(on_server.init(vector(0)), (vector(20),), one_round(0.1, t=2))
    assert state.x.item() == pytest.approx(sqrt(1 - 0.99**3) / (1 - 0.9**3) * 0.5)


# SCAFFOLD

numbers = st.floats(-4, 4, width=32, allow_subnormal=False)
pairs = st.lists(numbers, min_size=2, max_size=2).map(lambda values: vector(*values))


@given(x=pairs, c=pairs, c_i=pairs, centre=pairs, eta_l=st.sampled_from([0.05, 0.3, 1.0]))
@quick
def test_scaffold_control_variate_is_the_gradient_after_one_full_batch_step(x, c, c_i, centre, eta_l):
    """Option II with K = 1: c_i+ = c_i - c + eta_l (g - c_i + c) / eta_l = g."""
    work = Toy((bowl([0.5, 2.0], centre.tolist()),), one_round(eta_l), kept=(c_i,))
    result = scaffold().client(work, x, c)
    expected = vector(0.5, 2.0) * (x - centre)
    torch.testing.assert_close(result.keeps[0], expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.returns[1], expected - c_i, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.returns[0], -eta_l * (expected - c_i + c), rtol=1e-4, atol=1e-5)


@given(x=pairs, c=pairs, c_i=pairs)
@quick
def test_scaffold_option_I_keeps_the_full_gradient_at_x(x, c, c_i):
    """Two batches of curvature 1 around 0 and 2: the full gradient at x is x - 1."""
    work = Toy((bowl([1, 1], [0, 0]), bowl([1, 1], [2, 2])), one_round(0.1), kept=(c_i,), epochs=3)
    one, two = (scaffold(option=o).client(work, x, c) for o in ("I", "II"))
    torch.testing.assert_close(one.keeps[0], x - 1)
    torch.testing.assert_close(one.returns[1], x - 1 - c_i)
    assert torch.equal(one.returns[0], two.returns[0])  # the options differ only in c_i


def test_scaffold_with_new_clients_is_fedavg_to_the_bit():
    """In a client's first round c_i = c, for any c."""
    clients = toy.federation(seed=3, clients=6)
    rounds = {"eta_l": 0.1, "eta": 0.7, "cohort": lambda t: [2 * t, 2 * t + 1]}
    ours = play(scaffold(), clients, START, 3, **rounds)
    fedavg = play(fedopt(sgd(), sgd()), clients, START, 3, **rounds)
    assert all(torch.equal(a.x, b.x) for a, b in zip(ours.states, fedavg.states, strict=True))
    assert ours.states[2].c.abs().min() > 0


def test_scaffold_equals_two_rounds_worked_by_hand():
    """Two of four clients, eta = 2, n = 1 and 3, two steps and one, and eta_l = 1/4 then 1/2.

    Client 0 has g = x - 4, client 1 has g = 2x + 2.

    Round 0, c = c_0 = c_1 = 0, x = 0.
      0: x_0 = 0 + 4/4 = 1, 1 + 3/4 = 7/4;  c_0+ = (0 - 7/4) / (2/4) = -7/2
      1: x_1 = 0 - 2/4 = -1/2;              c_1+ = (0 + 1/2) / (1/4) = 2
      Delta x = (7/4 - 3/2) / 4 = 1/16,     x = 0 + 2/16 = 1/8
      Delta c = (-7/2 + 6) / 4 = 5/8,       c = 0 + 2/4 5/8 = 5/16
    Round 1.
      0: c - c_0 = 61/16; g + 61/16 = -1/16, x_0 = 1/8 + 1/32 = 5/32; g + 61/16 = -1/32, x_0 = 11/64
         c_0+ = -7/2 - 5/16 + (1/8 - 11/64) / (2/2) = -247/64, Delta c_0 = -23/64, Delta x_0 = 3/64
      1: c - c_1 = -27/16; g - 27/16 = 9/16, x_1 = 1/8 - 9/32 = -5/32
         c_1+ = 2 - 5/16 + (9/32) / (1/2) = 9/4, Delta c_1 = 1/4, Delta x_1 = -9/32
      Delta x = (3/64 - 27/32) / 4 = -51/256,   x = 1/8 - 51/128 = -35/128
      Delta c = (-23/64 + 3/4) / 4 = 25/256,    c = 5/16 + 25/512 = 185/512
    """
    absent = Client((bowl(1, 100),))
    clients = [Client((bowl(1, 4),) * 2), Client((bowl(2, -1),), examples=3), absent, absent]
    played = play(
        scaffold(), clients, vector(0), 2, eta_l=lambda t: [0.25, 0.5][t], eta=2.0, cohort=lambda t: [0, 1]
    )
    assert [s.x.item() for s in played.states] == [0, 1 / 8, -35 / 128]
    assert [s.c.item() for s in played.states] == [0, 5 / 16, 185 / 512]
    assert {i: kept[0].item() for i, kept in played.kept.items()} == {0: -247 / 64, 1: 9 / 4}


def test_scaffold_converges_where_fedavg_is_biased():
    """Clients a_i (x - b_i)^2 / 2 with weights p_i, K steps each, all in every round.

    K steps take client i to b_i + (1 - eta_l a_i)^K (x - b_i), so FedAvg rests where the weights
    p_i (1 - (1 - eta_l a_i)^K) balance; the objective's minimum weighs the b_i by p_i a_i.
    """
    a, b, n, K, eta_l = np.array([1.0, 4.0, 0.5]), np.array([0.0, 1.0, -3.0]), np.array([1, 2, 5]), 5, 0.1
    fedavg_rests_at = np.average(b, weights=n * (1 - (1 - eta_l * a) ** K))
    minimum = np.average(b, weights=n * a)
    clients = [Client((bowl(a[i], b[i]),), examples=int(n[i]), epochs=K) for i in range(3)]
    fedavg = play(fedopt(sgd(), sgd()), clients, vector(2), 200, eta_l=eta_l)
    controlled = play(scaffold(), clients, vector(2), 200, eta_l=eta_l)
    assert toy.optimum(clients) == pytest.approx(minimum)
    assert abs(fedavg_rests_at - minimum) > 0.1
    assert fedavg.x.item() == pytest.approx(fedavg_rests_at, abs=1e-5)
    assert controlled.x.item() == pytest.approx(minimum, abs=1e-5)
    gradients = [kept[0].item() for _, kept in sorted(controlled.kept.items())]
    assert gradients == pytest.approx(a * (minimum - b), abs=1e-4)
    assert controlled.states[-1].c.item() == pytest.approx(0, abs=1e-4)


# AdaAlter and Lookahead


def test_adaalter_equals_a_round_worked_by_hand():
    """eta_l = 1/2, epsilon^2 = 9, B2 = 7: the roots of the two steps are sqrt(7+9) = 4 and sqrt(7+18) = 5.

    0: g = x + 8 = 8, x_0 = -.5*8/4 = -1;  g = 7, x_0 = -1 - .5*7/5 = -1.7;      A2 = 7 + 64 + 49 = 120
    1: g = x - 4 = -4, x_1 = .5*4/4 = .5;  g = -3.5, x_1 = .5 + .5*3.5/5 = .85;  A2 = 7 + 16 + 12.25 = 35.25
    With n = 1 and 3: x = (-1.7 + 2.55)/4 = .2125, B2 = (120 + 105.75)/4 = 56.4375.
    The next round starts again at epsilon^2: g = 8.2125, Delta = -.5*8.2125/sqrt(56.4375 + 9).
    """
    algorithm = adaalter(epsilon=3.0, initial_accumulator=7.0)
    clients = [Client((bowl(1, -8),) * 2), Client((bowl(1, 4),) * 2, examples=3)]
    state = play(algorithm, clients, vector(0), 1, eta_l=0.5).states[-1]
    assert (state.x.item(), state.B2.item()) == (pytest.approx(0.2125), pytest.approx(56.4375))
    delta, A2 = algorithm.client(Toy((bowl(1, -8),), one_round(0.5, t=1)), *algorithm.sent(state)).returns
    assert delta.item() == pytest.approx(-0.5 * 8.2125 / sqrt(65.4375))
    assert A2.item() == pytest.approx(56.4375 + 8.2125**2)
    assert len(algorithm.sends) == len(algorithm.returns) == 2
    assert adaalter().init(vector(0)).B2.item() == 1


def test_lookahead_with_reset_is_fedopt_to_the_bit():
    ours, theirs = lookahead(adam()), fedopt(adam(), sgd())
    ours, theirs = (play(a, CLIENTS, START, 4, eta_l=0.03, eta=0.5) for a in (ours, theirs))
    assert all(torch.equal(a.x, b.x) for a, b in zip(ours.states, theirs.states, strict=True))


def test_lookahead_with_average_shares_v_and_resets_m():
    """Adam with beta1 = 1/2, beta2 = 3/4, tau = 8, v = 64; eta_l = 15, eta = 1/2; one step a round.

    Round 0, -g = 2: m = 1, v = 48 + 1 = 49, x_0 = 15*1/(7+8) = 1
             -g = 22: m = 11, v = 48 + 121 = 169, x_1 = 15*11/(13+8) = 55/7
             x = (1 + 55/7)/4 = 31/14, v = (49 + 169)/2 = 109
    Round 1, -g = 2 - 31/14 = -3/14: m = -3/28, v = .75*109 + .25*9/196, step 15 m / (sqrt(v) + 8)
             -g = 22 - 31/14 = 277/14: m = 277/28, v = .75*109 + .25*(277/14)^2
    """
    algorithm = lookahead(adam(beta1=0.5, beta2=0.75, tau=8.0), state="average")
    clients = [Client((bowl(1, 2),)), Client((bowl(1, 22),))]
    _, first, second = play(algorithm, clients, vector(0), 2, eta_l=15.0, eta=0.5).states
    assert (first.x.item(), first.v.item()) == (pytest.approx(31 / 14), 109)
    v = [0.75 * 109 + 0.25 * (g / 14) ** 2 for g in (-3, 277)]
    steps = [15 * m / 28 / (sqrt(v_i) + 8) for m, v_i in zip((-3, 277), v, strict=True)]
    assert second.x.item() == pytest.approx(31 / 14 + sum(steps) / 4)
    assert second.v.item() == pytest.approx(sum(v) / 2)
    assert algorithm.sends == ("x", "v") and len(algorithm.returns) == 2


# FedProx and centralized training


def test_fedprox_with_mu_zero_is_fedopt_to_the_bit():
    ours, theirs = fedprox(adam(), adam(), mu=0.0), fedopt(adam(), adam())
    ours, theirs = (play(a, CLIENTS, START, 4, eta_l=0.03, eta=0.1) for a in (ours, theirs))
    assert all(torch.equal(a.x, b.x) for a, b in zip(ours.states, theirs.states, strict=True))


def test_fedprox_pulls_clients_towards_x():
    """g = x_i - 5 + (x_i - 1)/2 at eta_l = 1/2: g = -4, x_i = 3; g = -1, x_i = 3.5; g = -.25, x_i = 3.625."""
    work = Toy((bowl(1, 5),), one_round(0.5), epochs=3)
    assert fedprox(sgd(), sgd(), mu=0.5).client(work, vector(1)).returns[0].item() == 2.625


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_centralized_training_continues_across_rounds(name):
    """Two rounds of K steps equal 2K steps, up to the rounding of delta; the step count continues."""
    options = {"bias_correction": True} if "bias_correction" in keywords(OPTIMIZERS[name]) else {}
    optimizer = OPTIMIZERS[name](**options)
    batches = CLIENTS[3].data
    x, state = START, optimizer.init(START)
    for k, b in enumerate(batches * 2):
        x, state = optimizer.update(x, -(b.H @ x - b.h), 0.05, k, state)
    algorithm = centralized(optimizer)
    played = play(algorithm, [Client(batches)], START, 2, eta_l=0.05)
    torch.testing.assert_close(played.x, x, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(played.kept[0], state, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert algorithm.keeps == tuple(getattr(state, "_fields", ()))


# The registry


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_with_its_defaults(name):
    """An algorithm with its own rule has no optimizer for that side."""
    entry = ALGORITHMS[name]
    client, server = next(iter(entry.clients), None), next(iter(entry.servers), None)
    options = {k: v for factory in entry.options.values() for k, v in keywords(factory).items()}
    algorithm = build(name, client and (client, {}), server and (server, {}), options)
    clients = [Client(CLIENTS[3].data)] if name == "centralized" else CLIENTS
    played = play(algorithm, clients, START, 60, eta_l=ETA_L[client], eta=ETA[server])
    assert toy.excess(clients, played.x) < 0.05 * toy.excess(clients, START)
    assert {*entry.clients, *entry.servers} <= set(OPTIMIZERS)


def test_variants_use_arguments_of_the_optimizers():
    assert VARIANTS["as_printed"] == {}
    for name, arguments in VARIANTS["as_run"].items():
        assert arguments.keys() <= keywords(OPTIMIZERS[name]).keys()
        assert OPTIMIZERS[name](**arguments).init(START).m.tolist() == [0, 0, 0]
        if "initial_accumulator" in arguments:
            assert OPTIMIZERS[name](**arguments).init(START).v.tolist() == [0, 0, 0]
    assert VARIANTS["as_run"].keys() == {"sgdm", "adagrad", "adam", "yogi"}
