"""Logistic regression by Newton's method.

Legend: N examples, W weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def probability(scores_N: Floats, odds: float = 1.0) -> Floats:
    """Returns the probabilities [N] of scores whose odds are multiplied by prior `odds`."""
    probabilities_N: Floats = 1 / (1 + np.exp(-scores_N.clip(-30, 30)) / odds)
    return probabilities_N


def regression(
    inputs_NW: Floats, labels_N: Floats, importance_N: Floats, ridge_W: Floats, weights_W: Floats, steps: int
) -> Floats:
    """Returns the weights [W] after at most `steps` Newton steps from `weights_W`. They maximise the log-likelihood of
    the labels, weighted by importance, minus half the squared weights times `ridge_W`."""
    for _ in range(steps):
        expected_N = probability(inputs_NW @ weights_W)
        gradient_W = inputs_NW.T @ (importance_N * (labels_N - expected_N)) - ridge_W * weights_W
        curvature_N = importance_N * expected_N * (1 - expected_N)
        step_W = np.linalg.solve((inputs_NW * curvature_N[:, None]).T @ inputs_NW + np.diag(ridge_W), gradient_W)
        weights_W = weights_W + step_W
        if np.abs(step_W).max() < 1e-9:
            break
    return weights_W
