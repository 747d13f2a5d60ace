"""The optimizers against Algorithm 2, worked by hand and in float64."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toy import vector

from fedopt.algorithms import OPTIMIZERS

ADAPTIVE = ("adagrad", "adam", "yogi", "amsgrad", "adabound")
quick = settings(deadline=None, derandomize=True, max_examples=20)


def walk(name: str, options: dict[str, Any], deltas, etas) -> tuple[list[torch.Tensor], list[Any]]:
    """Every x_t and every state from x_0 on, as the package computes them."""
    optimizer = OPTIMIZERS[name](**options)
    deltas = [torch.as_tensor(d, dtype=torch.float32).reshape(-1) for d in deltas]
    x = torch.zeros_like(deltas[0])
    xs, states = [x], [optimizer.init(x)]
    for t, (delta, eta) in enumerate(zip(deltas, etas, strict=True)):
        x, state = optimizer.update(xs[-1], delta, eta, t, states[-1])
        xs.append(x)
        states.append(state)
    return xs, states


class Case(NamedTuple):
    """One coordinate from x_0 = 0: the moves Delta_t at the rates eta_t lead to x_1, x_2, ..."""

    name: str
    options: dict[str, Any]
    etas: list[float]
    deltas: list[float]
    xs: list[float]


HALF = {"beta1": 0.5, "beta2": 0.75, "tau": 8.0}
KERAS = {"tau": 2.0, "initial_accumulator": 0.0, "bias_correction": True}
R1, R2, R3 = 1.0, sqrt(0.0199) / 0.19, sqrt(0.029701) / 0.271  # sqrt(1 - .99^s) / (1 - .9^s), s = 1, 2, 3

BY_HAND = {
    # x = .5*2, then + .5*(-1)
    "sgd": Case("sgd", {}, [0.5, 0.5], [2, -1], [1.0, 0.5]),
    # m = 2, .9*2 - 1 = .8, .9*.8 + 1 = 1.72; x = .5*2, + .5*.8, + .5*1.72
    "sgdm": Case("sgdm", {}, [0.5] * 3, [2, -1, 1], [1.0, 1.4, 2.26]),
    "sgdm, folded, constant rate": Case("sgdm", {"fold_rate": True}, [0.5] * 3, [2, -1, 1], [1.0, 1.4, 2.26]),
    # the same m; x = .5*2, + .25*.8, + 1*1.72
    "sgdm, changing rate": Case("sgdm", {}, [0.5, 0.25, 1.0], [2, -1, 1], [1.0, 1.2, 2.92]),
    # m = .5*2 = 1, .9*1 - .25*1 = .65, .9*.65 + 1*1 = 1.585; x = 1, 1 + .65, 1.65 + 1.585
    "sgdm, folded, changing rate": Case(
        "sgdm", {"fold_rate": True}, [0.5, 0.25, 1.0], [2, -1, 1], [1.0, 1.65, 3.235]
    ),
    # beta1 = 0; v = 3^2 + 4^2 = 5^2, + 12^2 = 13^2, + 84^2 = 85^2
    # x = 2*4/(5+3), + 2*12/(13+3), - 2*84/(85+3)
    "adagrad": Case("adagrad", {"tau": 3.0}, [2.0] * 3, [4, 12, -84], [1.0, 2.5, 2.5 - 168 / 88]),
    # v = 3^2, + 4^2 = 5^2; x = 2*3/(3+1), + 2*4/(5+1)
    "adagrad from zero": Case(
        "adagrad", {"tau": 1.0, "initial_accumulator": 0.0}, [2.0] * 2, [3, 4], [1.5, 1.5 + 8 / 6]
    ),
    # m = .5*4 = 2, .5*2 + .5*12 = 7; v as in the first row; x = 2*2/(5+3), + 2*7/(13+3)
    "adagrad with momentum": Case(
        "adagrad", {"tau": 3.0, "beta1": 0.5}, [2.0] * 2, [4, 12], [0.5, 0.5 + 14 / 16]
    ),
    # v = .75*64 + .25*2^2 = 7^2, .75*49 + .25*23^2 = 13^2; m = 1, .5 + 11.5 = 12
    # x = 15*1/(7+8), + 15*12/(13+8)
    "adam": Case("adam", HALF, [15.0] * 2, [2, 23], [1.0, 1 + 180 / 21]),
    # beta1 = .9, beta2 = .99; v = .99*100 + .01*150^2 = 18^2, .99*324 + .01*270^2 = 32.4^2
    # m = 15, .9*15 + .1*270 = 40.5; x = 2.8*15/(18+10), + 2.8*40.5/(32.4+10)
    "adam, the paper's betas": Case("adam", {"tau": 10.0}, [2.8] * 2, [150, 270], [1.5, 1.5 + 113.4 / 42.4]),
    # v = .01*20^2 = 2^2, .99*4 + .01*30^2 = 3.6^2; m = 2, 1.8 + 3 = 4.8; x = R 2/(2+2), + R' 4.8/(3.6+2)
    "adam from zero": Case(
        "adam", {"tau": 2.0, "initial_accumulator": 0.0}, [1.0] * 2, [20, 30], [0.5, 0.5 + 4.8 / 5.6]
    ),
    "adam, corrected": Case("adam", KERAS, [1.0] * 2, [20, 30], [R1 * 0.5, R1 * 0.5 + R2 * 4.8 / 5.6]),
    "adam, corrected from step 2": Case(
        "adam", KERAS | {"first_step": 2}, [1.0] * 2, [20, 30], [R2 * 0.5, R2 * 0.5 + R3 * 4.8 / 5.6]
    ),
    # 4 = 2^2: v stays; 4 < 3^2: v = 4 + .25*3^2 = 2.5^2; 6.25 > 1.4^2: v = 6.25 - .25*1.4^2
    # = 2.4^2; m = 1, .5 + 1.5 = 2, 1 + .7 = 1.7; x = 4*1/(2+2), + 4*2/(2.5+2), + 4*1.7/(2.4+2)
    "yogi": Case(
        "yogi", HALF | {"tau": 2.0}, [4.0] * 3, [2, 3, 1.4], [1.0, 1 + 8 / 4.5, 1 + 8 / 4.5 + 6.8 / 4.4]
    ),
    # 100 < 240^2: v = 100 + .01*240^2 = 26^2; 676 > 20^2: v = 676 - .01*20^2 = 672
    # m = 24, .9*24 + .1*20 = 23.6; x = 3.6*24/(26+10), + 3.6*23.6/(sqrt(672)+10)
    "yogi, the paper's betas": Case(
        "yogi", {"tau": 10.0}, [3.6] * 2, [240, 20], [2.4, 2.4 + 84.96 / (sqrt(672) + 10)]
    ),
    # 0 < 20^2: v = .01*20^2 = 2^2; 4 < 15^2: v = 4 + .01*15^2 = 2.5^2; m = 2, 1.8 + 1.5 = 3.3
    # x = R 2/(2+2), + R' 3.3/(2.5+2)
    "yogi, corrected": Case("yogi", KERAS, [1.0] * 2, [20, 15], [R1 * 0.5, R1 * 0.5 + R2 * 3.3 / 4.5]),
    "yogi, corrected from step 2": Case(
        "yogi", KERAS | {"first_step": 2}, [1.0] * 2, [20, 15], [R2 * 0.5, R2 * 0.5 + R3 * 3.3 / 4.5]
    ),
    # v = 49, 169, .75*169 = 126.75 as for Adam, but the largest so far is 64, 169, 169; m = 1, 12, 6
    # x = 16*1/(8+8), + 16*12/(13+8), + 16*6/(13+8)
    "amsgrad": Case("amsgrad", HALF, [16.0] * 3, [2, 23, 0], [1.0, 1 + 192 / 21, 1 + 192 / 21 + 96 / 21]),
    # bounds 1 - 1/(s+1) and 1 + 1/s: [1/2, 2], [2/3, 3/2], [3/4, 4/3]. v as for Adam; m = 1, 12, 6. The rates
    # 45/15 = 3 -> 2, 6.3/21 = .3 -> 2/3, 20/(sqrt(126.75)+8) = 1.04 stays
    "adabound": Case(
        "adabound",
        HALF | {"final_rate": 1.0, "gamma": 1.0},
        [45.0, 6.3, 20.0],
        [2, 23, 0],
        [2.0, 10.0, 10 + 120 / (sqrt(126.75) + 8)],
    ),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND)
def test_first_steps_equal_numbers_worked_by_hand(case):
    xs, _ = walk(case.name, case.options, case.deltas, case.etas)
    assert torch.cat(xs[1:]).tolist() == pytest.approx(case.xs, rel=1e-6)


def reference(name: str, options: dict[str, Any], deltas, etas) -> tuple[np.ndarray, float]:
    """x after the last step in float64, written from the paper, and how near a tie Yogi's sign came."""
    o = {"beta1": 0.0 if name == "adagrad" else 0.9, "beta2": 0.99, "tau": 1e-3} | options
    b1, b2, tau = o["beta1"], o["beta2"], o["tau"]
    x = m = np.zeros_like(deltas[0])
    v = largest = np.full_like(x, o.get("initial_accumulator", tau**2))
    gap = np.inf
    for t, (delta, eta) in enumerate(zip(deltas, etas, strict=True)):
        square = delta * delta
        if name == "sgd":
            x = x + eta * delta
            continue
        if name == "sgdm":
            m = o.get("momentum", 0.9) * m + (eta if o.get("fold_rate") else 1) * delta
            x = x + (1 if o.get("fold_rate") else eta) * m
            continue
        m = b1 * m + (1 - b1) * delta
        if name == "adagrad":
            v = v + square
        elif name == "yogi":
            near = abs(v - square)[square > 0] / np.maximum(v, square)[square > 0]
            gap = min([gap, *near])
            v = v - (1 - b2) * square * np.sign(v - square)
        else:
            v = b2 * v + (1 - b2) * square
        largest = np.maximum(largest, v)
        if o.get("bias_correction"):
            s = t + o.get("first_step", 1)
            eta = eta * np.sqrt(1 - b2**s) / (1 - b1**s)
        rate = eta / (np.sqrt(largest if name == "amsgrad" else v) + tau)
        if name == "adabound":
            final, s = o.get("final_rate", 0.1), o.get("gamma", 1e-3) * (t + 1)
            rate = np.clip(rate, final - final / (s + 1), final + final / s)
        x = x + rate * m
    return x, gap


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32, allow_subnormal=False)


sequences = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(floats(-4, 4), min_size=2, max_size=2), min_size=n, max_size=n),
        st.lists(floats(0.125, 2), min_size=n, max_size=n),
    )
)
KERAS_HAS, STEP_2 = ("adam", "yogi"), {"bias_correction": True, "first_step": 2}
LONG = [
    (name, options)
    for name in OPTIMIZERS
    for options in (
        [{}]
        + [{"momentum": 0.5, "fold_rate": True}] * (name == "sgdm")
        + [{"tau": 0.1, "initial_accumulator": 0.0}, {"tau": 0.5, "beta1": 0.5}] * (name in ADAPTIVE)
        + [{"beta2": 0.9, "beta1": 0.0, "initial_accumulator": 1.0}] * (name in ADAPTIVE[1:])
        + [{"tau": 0.1, "bias_correction": True}, {"initial_accumulator": 0.0} | STEP_2] * (name in KERAS_HAS)
        + [{"final_rate": 0.5, "gamma": 0.5}] * (name == "adabound")
    )
]


@pytest.mark.parametrize(("name", "options"), LONG, ids=[f"{n}-{','.join(o)}" for n, o in LONG])
@given(sequence=sequences)
@quick
def test_long_sequences_equal_a_float64_reference(name, options, sequence):
    deltas, etas = np.array(sequence[0]), sequence[1]
    expected, gap = reference(name, options, deltas, etas)
    assume(gap > 1e-4)  # at a tie Yogi's sign depends on rounding
    xs, _ = walk(name, options, deltas, etas)
    np.testing.assert_allclose(xs[-1].numpy(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_initial_accumulator_is_tau_squared_by_default(name):
    x = vector(5.0, -1.0)
    state = OPTIMIZERS[name](tau=0.25).init(x)
    assert state.m.tolist() == [0.0, 0.0]
    assert state.v.tolist() == [0.0625, 0.0625]
    assert OPTIMIZERS[name]().init(x).v.tolist() == pytest.approx([1e-6, 1e-6])  # tau = 1e-3
    assert OPTIMIZERS[name](initial_accumulator=0.0).init(x).v.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ADAPTIVE[:4])
@pytest.mark.parametrize("corrected", [False, True])
@given(sequence=sequences, power=st.integers(-12, 12))
@quick
def test_scaling_delta_and_tau_by_a_power_of_two_changes_no_bit(name, corrected, sequence, power):
    """Section 3: the server's updates do not depend on the scale of eta_l if tau scales with it."""
    options = {"bias_correction": True} if corrected and name in KERAS_HAS else {}
    deltas, etas = np.array(sequence[0]), sequence[1]
    deltas[abs(deltas) < 1e-6] = 0  # their squares would leave the range of float32
    plain, _ = walk(name, options | {"tau": 1e-2}, deltas, etas)
    scaled, _ = walk(name, options | {"tau": 1e-2 * 2.0**power}, deltas * 2.0**power, etas)
    assert all(torch.equal(a, b) for a, b in zip(plain, scaled, strict=True))


def test_changes_of_v_in_adagrad_adam_and_yogi():
    """From v = 16, with beta2 = 3/4, for Delta^2 = 0, 1, 16 and 64."""
    deltas, options = (
        [[0.0, 1.0, 4.0, 8.0]],
        {"adagrad": {}, "adam": {"beta2": 0.75}, "yogi": {"beta2": 0.75}},
    )
    states = {name: walk(name, o | {"tau": 4.0}, deltas, [1.0])[1] for name, o in options.items()}
    change = {name: after.v - before.v for name, (before, after) in states.items()}
    assert change["adam"].tolist() == [-4.0, -3.75, 0.0, 12.0]  # (Delta^2 - v) / 4
    assert change["yogi"].tolist() == [0.0, -0.25, 0.0, 16.0]  # sign(Delta^2 - v) Delta^2 / 4
    assert change["adagrad"].tolist() == [0.0, 1.0, 16.0, 64.0]  # Delta^2


@given(sequence=sequences, first=st.sampled_from([1, 2]), tau=st.sampled_from([1e-3, 0.1, 1.0]))
@quick
def test_adam_with_bias_correction_equals_keras(sequence, first, tau):
    """Keras takes the gradient -Delta. It scales the rate by both corrections, and epsilon by none."""
    x = m = v = np.zeros(2)
    for t, (delta, lr) in enumerate(zip(np.array(sequence[0]), sequence[1], strict=True), start=first):
        g = -delta
        lr_t = lr * np.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        m = m + (g - m) * (1 - 0.9)
        v = v + (g * g - v) * (1 - 0.99)
        x = x - lr_t * m / (np.sqrt(v) + tau)
    options = {"tau": tau, "initial_accumulator": 0.0, "bias_correction": True, "first_step": first}
    xs, _ = walk("adam", options, *sequence)
    np.testing.assert_allclose(xs[-1].numpy(), x, rtol=1e-4, atol=2e-4)


def torch_walk(optimizer: Any, deltas: np.ndarray, **options: Any) -> np.ndarray:
    x = torch.nn.Parameter(torch.zeros(deltas.shape[1]))
    o = optimizer([x], **options)
    for delta in deltas:
        x.grad = -torch.tensor(delta, dtype=torch.float32)
        o.step()
    return x.detach().numpy()


def test_sgdm_adagrad_and_adam_equal_torch():
    deltas = np.random.default_rng(1).normal(size=(9, 5))
    zero, rates = {"initial_accumulator": 0.0}, [0.1] * 9
    adam = {"bias_correction": True, **zero}
    for ours, theirs in [
        (("sgdm", {}), (torch.optim.SGD, {"momentum": 0.9})),
        (("adagrad", {"tau": 0.3, **zero}), (torch.optim.Adagrad, {"eps": 0.3})),
        (("adam", {"tau": 1e-9, **adam}), (torch.optim.Adam, {"eps": 1e-9, "betas": (0.9, 0.99)})),
    ]:
        expected = torch_walk(theirs[0], deltas, lr=0.1, **theirs[1])
        np.testing.assert_allclose(walk(*ours, deltas, rates)[0][-1].numpy(), expected, rtol=1e-4, atol=1e-6)
    # with a large epsilon they differ: torch's Adam divides the root by its correction, Keras' does not
    expected = torch_walk(torch.optim.Adam, deltas, lr=0.1, eps=1.0, betas=(0.9, 0.99))
    assert np.abs(walk("adam", {"tau": 1.0, **adam}, deltas, rates)[0][-1].numpy() - expected).max() > 0.01


@given(sequence=sequences, eta=floats(0.125, 2))
@quick
def test_fold_rate_changes_nothing_for_a_constant_rate(sequence, eta):
    etas = [eta] * len(sequence[1])
    plain, folded = (walk("sgdm", {"fold_rate": f}, sequence[0], etas)[0][-1] for f in (False, True))
    torch.testing.assert_close(plain, folded, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_update_does_not_change_its_inputs(name):
    optimizer = OPTIMIZERS[name]()
    x, delta = vector(1.0, -2.0, 3.0), vector(0.5, 0.0, -4.0)
    _, state = optimizer.update(x, delta, 0.5, 0, optimizer.init(x))
    before = [v.clone() for v in (x, delta, *state)]
    _, after = optimizer.update(x, delta, 0.5, 1, state)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, delta, *state), strict=True))
    assert type(after) is type(state)
