"""Small matrix products of a traced graph become sums with the same values."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fedopt.engine.stacked.products import sum_small_products


@pytest.mark.parametrize(
    ("shapes", "is_transposed", "products"),
    [
        (((3, 10, 10), (3, 10, 32)), False, 0),
        (((3, 10, 60), (3, 10, 60)), True, 1),  # the rows of the second matrix are not contiguous
        (((3, 32, 10), (3, 10, 60)), False, 1),  # 19,200 multiplications
    ],
)
def test_small_products_with_contiguous_rows_become_sums(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], is_transposed: bool, products: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator) for shape in shapes)

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b.transpose(1, 2) if is_transposed else b)

    graph = make_fx(multiply)(a, b)
    sum_small_products(graph)
    calls = [node for node in graph.graph.nodes if node.target is torch.ops.aten.bmm.default]
    assert len(calls) == products
    expected = multiply(a.double(), b.double())
    torch.testing.assert_close(graph(a, b).double(), expected, rtol=1e-5, atol=1e-5)
