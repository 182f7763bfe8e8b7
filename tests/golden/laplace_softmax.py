"""Covariance of a softmax network's logits by laplace-torch, as expected values for the tests.

Run ``python tests/golden/laplace_softmax.py``; it writes ``laplace_softmax.json`` beside itself.
Made with laplace-torch 0.3, curvlinops-for-pytorch 3.0.1 and torch 2.13.0. The file holds the
versions used, and how far laplace-torch is from the dense generalized Gauss-Newton matrix below.

The network is 4-8-8-3 with tanh, in float64, at a minimum of

    sum_i cross_entropy(f(x_i), y_i) + l2 / 2 |theta|^2,

and the covariance of the logits at a point with Jacobian J (3, d) is J (G + l2 I)^-1 J', with
G = sum_i J_i' (diag(p_i) - p_i p_i') J_i. Parameters are in the order of ``module.parameters()``.
"""

import json
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev, vmap
from torch.nn.functional import cross_entropy

N, POINTS, JOINT_POINTS = 150, 20, 5
L2 = 0.5
SEED = 20240611
TOLERANCE = 1e-8

Parameters = OrderedDict[str, Tensor]


def main() -> None:
    torch.set_num_threads(1)
    # laplace-torch multiplies the curvature by torch.eye(d) in the default type.
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(SEED)
    x, y, points = simulate()
    module = network()
    train(module, x, y)
    joint = laplace_covariance(module, x, y, points)
    difference = relative_difference(joint, dense_covariance(module, x, y, points))
    if difference > TOLERANCE:
        raise SystemExit(f"laplace-torch differs from the dense matrix by {difference:.1e}.")
    record = (
        problem(module, x, y, points)
        | expected(joint)
        | {
            "gradient_norm": float(gradient(module, x, y).norm()),
            "smallest_hessian_eigenvalue": float(
                torch.linalg.eigvalsh(objective_hessian(module, x, y)).min()
            ),
            "relative_difference_from_dense": difference,
        }
    )
    Path(__file__).with_suffix(".json").write_text(json.dumps(record) + "\n")
    print(f"|gradient| {record['gradient_norm']:.1e}, difference from dense {difference:.1e}")


def problem(module: nn.Sequential, x: Tensor, y: Tensor, points: Tensor) -> dict[str, Any]:
    """Everything needed to rebuild the fitted network, and the versions that made it."""
    return {
        "versions": {p: version(p) for p in ("laplace-torch", "curvlinops-for-pytorch", "torch")},
        "seed": SEED,
        "likelihood": "categorical, logits",
        "hidden": [8, 8],
        "activation": "tanh",
        "l2": L2,
        "x": x.tolist(),
        "y": y.tolist(),
        "state_dict": {name: value.tolist() for name, value in module.state_dict().items()},
        "points": points.tolist(),
        "logits": module(points).tolist(),
    }


def expected(joint: Tensor) -> dict[str, Any]:
    """The covariance of the three logits at each point, and of all logits at the first points."""
    by_point = joint.reshape(POINTS, 3, POINTS, 3)
    blocks = torch.stack([by_point[i, :, i] for i in range(POINTS)])
    return {
        "variance": blocks.diagonal(dim1=1, dim2=2).tolist(),
        "covariance": blocks.tolist(),
        "joint_points": JOINT_POINTS,
        "joint_covariance": joint[: 3 * JOINT_POINTS, : 3 * JOINT_POINTS].tolist(),
    }


def simulate() -> tuple[Tensor, Tensor, Tensor]:
    """Three noisy classes with curved borders in four dimensions, and points to predict."""
    x = torch.randn(N, 4).round(decimals=4)
    logits = torch.stack([x[:, 0] * x[:, 1], torch.sin(2 * x[:, 2]), x[:, 3] - 0.5], dim=1)
    y = torch.distributions.Categorical(logits=2 * logits).sample()
    # Wider than the data, so that some of the variances are extrapolations.
    return x, y, (1.5 * torch.randn(POINTS, 4)).round(decimals=4)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def train(module: nn.Sequential, x: Tensor, y: Tensor) -> None:
    """Train by L-BFGS and finish by Newton's method."""
    optimizer = torch.optim.LBFGS(
        module.parameters(),
        max_iter=5000,
        tolerance_grad=1e-9,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = objective(parameters(module), module, x, y)
        loss.backward()
        return loss

    optimizer.step(closure)
    for _ in range(4):
        theta = nn.utils.parameters_to_vector(module.parameters()).detach()
        step = torch.linalg.solve(objective_hessian(module, x, y), gradient(module, x, y))
        nn.utils.vector_to_parameters(theta - step, module.parameters())


def objective(theta: Parameters, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss = cross_entropy(functional_call(module, theta, x), y, reduction="sum")
    return loss + L2 / 2 * sum(p.square().sum() for p in theta.values())


def parameters(module: nn.Module) -> Parameters:
    return OrderedDict(module.named_parameters())


def gradient(module: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    loss = objective(parameters(module), module, x, y)
    return nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))


def objective_hessian(module: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Hessian (d, d) of the objective."""
    theta = OrderedDict((name, p.detach()) for name, p in module.named_parameters())
    by_name = hessian(objective)(theta, module, x, y)
    rows = [
        torch.cat([by_name[i][j].reshape(theta[i].numel(), -1) for j in theta], dim=1)
        for i in theta
    ]
    return torch.cat(rows)


def laplace_covariance(module: nn.Module, x: Tensor, y: Tensor, points: Tensor) -> Tensor:
    """Joint covariance (3 points, 3 points) of the logits by laplace-torch."""
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    posterior = Laplace(
        module,
        likelihood="classification",
        subset_of_weights="all",
        hessian_structure="full",
        prior_precision=L2,
    )
    posterior.fit(DataLoader(TensorDataset(x, y), batch_size=len(x)))
    jacobians, _ = posterior.backend.jacobians(points)
    return posterior.functional_covariance(jacobians)


def dense_covariance(module: nn.Module, x: Tensor, y: Tensor, points: Tensor) -> Tensor:
    """Return the same, written out: J (sum_i J_i' H_i J_i + l2 I)^-1 J'."""
    train_jacobian = logit_jacobian(module, x)
    p = torch.softmax(module(x), dim=1).detach()
    output_hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    ggn = torch.einsum("ncp,nck,nkq->pq", train_jacobian, output_hessian, train_jacobian)
    jacobian = logit_jacobian(module, points).flatten(end_dim=1)
    return jacobian @ torch.linalg.solve(ggn + L2 * torch.eye(len(ggn)), jacobian.T)


def logit_jacobian(module: nn.Module, x: Tensor) -> Tensor:
    """Jacobian (n, 3, d) of the logits with respect to the parameters."""
    theta = OrderedDict((name, p.detach()) for name, p in module.named_parameters())
    by_name = vmap(jacrev(lambda t, row: functional_call(module, t, row)), (None, 0))(theta, x)
    return torch.cat([block.flatten(start_dim=2) for block in by_name.values()], dim=2)


def relative_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


if __name__ == "__main__":
    main()
