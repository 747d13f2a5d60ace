"""Write small matrix products as sums, which the compiler fuses with the operations around them.

A call of a matrix library takes longer than the few operations of a small product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

# Multiplications of one matrix product. Measured for the products of `small_lr` and `small_mlp`: 3,200 and
# 6,000 are faster as a sum, 19,200 is slower.
_MAX_MULTIPLICATIONS = 8192


def sum_small_products(graph: GraphModule) -> None:
    """Replace small products A B of a traced graph by the sum over k of A[:, k] B[k, :].

    The rows of B must be contiguous, so that the compiled loop reads whole vectors.
    """
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.bmm.default and _is_small(*node.args):
            first, second = node.args
            with graph.graph.inserting_before(node):
                columns = graph.graph.call_function(torch.ops.aten.unsqueeze.default, (first, 3))
                rows = graph.graph.call_function(torch.ops.aten.unsqueeze.default, (second, 1))
                terms = graph.graph.call_function(torch.ops.aten.mul.Tensor, (columns, rows))
                total = graph.graph.call_function(torch.ops.aten.sum.dim_IntList, (terms, [2]))
            node.replace_all_uses_with(total)
            graph.graph.erase_node(node)
    graph.recompile()


def _is_small(first: Node, second: Node) -> bool:
    a: Tensor = first.meta["val"]
    b: Tensor = second.meta["val"]
    _, m, k = a.shape
    return b.stride(2) == 1 and m * k * b.shape[2] <= _MAX_MULTIPLICATIONS
