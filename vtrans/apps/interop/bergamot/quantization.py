"""8-bit quantization of weights and activations, as in Bergamot.

Each matrix has one multiplier, and its input activations have another, the alpha. Values are multiplied, rounded to
integers and clipped at -127 and 127. A network with the same rounded values is a reference for Bergamot, except for
the order of sums, which may move an activation to the next integer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from vtrans.apps.interop.bergamot.files import Matrix
from vtrans.apps.interop.comparison import encoded, translated
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.products import Linear

LARGEST_INTEGER = 127  # largest absolute value of a quantised number
# Limit for the sum of two neighbouring weights. Inputs range from 0 to 254, because the engine adds 127 to them.
MOST_OF_PAIR = 32767 // 254
PROJECTION = "projection"
KEPT = 1 << 18  # activations per matrix from which its alpha is chosen
CLIPS = [share / 40 for share in range(8, 81)]  # candidates, as shares of the largest value, for clipping
# Candidates for weights. They include every share with which the largest value becomes an integer from 60 to 127.
WEIGHT_CLIPS = [*CLIPS[:32], *(LARGEST_INTEGER / largest for largest in range(LARGEST_INTEGER, 59, -1))]


def matrix(weight: Tensor) -> Matrix:
    """Returns an 8-bit matrix [out, in], with the multiplier that minimises the squared error.

    The engine adds the products of two neighbouring inputs in 16 bits, where larger sums saturate. No sum saturates
    here, for any inputs, so all processors give the same result. Quantising the values of a matrix gives the same
    matrix: its multiplier has 8 significant bits, so rounding errors of the values do not change it.
    """
    largest = float(weight.abs().max()) or 1.0
    multipliers = torch.tensor([LARGEST_INTEGER / (largest * share) for share in WEIGHT_CLIPS]).bfloat16()
    matrices = map(partial(_matrix, weight), multipliers.tolist())
    return min(matrices, key=lambda matrix: float((matrix.values - weight).square().sum()))


def _matrix(weight: Tensor, multiplier: float) -> Matrix:
    pairs = torch.round(weight * multiplier).clamp_(-LARGEST_INTEGER, LARGEST_INTEGER).view(len(weight), -1, 2)
    sums = pairs.sum(2, keepdim=True)
    excess = (sums.abs() - MOST_OF_PAIR).clamp_(min=0) * sums.sign()
    pairs -= torch.cat((torch.trunc(excess / 2), excess - torch.trunc(excess / 2)), 2)
    return Matrix(pairs.flatten(1).to(torch.int8), multiplier)


def rounded(values: Tensor, alpha: float) -> Tensor:
    """Returns activations as Bergamot rounds them: integers from -127 to 127, divided by `alpha`."""
    return torch.round(values * alpha).clamp_(-LARGEST_INTEGER, LARGEST_INTEGER) * (1 / alpha)


def tuned_alphas(loaded: LoadedModel, lines: Sequence[str]) -> dict[str, float]:
    """Returns the alpha of each linear layer by all its names. Each minimises the squared error of the activations
    while the lines are translated. Raises InputError if all lines are blank or too long."""
    seen: dict[nn.Module, list[Tensor]] = {}

    def keep(module: nn.Module, values: Tensor) -> None:
        kept = seen.setdefault(module, [])
        if sum(map(len, kept)) < KEPT:
            kept.append(values.flatten().abs())

    model = loaded.model
    layers = {
        name: module for name, module in model.named_modules(remove_duplicate=False) if isinstance(module, Linear)
    }
    handles = [
        layer.register_forward_pre_hook(lambda layer, given: keep(layer, given[0])) for layer in {*layers.values()}
    ]
    handles.append(model.decoder.final_norm.register_forward_hook(lambda norm, _, out: keep(norm, out)))
    translated(loaded, encoded(loaded, lines))
    for handle in handles:
        handle.remove()
    alphas = {module: _alpha(torch.cat(kept)) for module, kept in seen.items()}
    return {name: alphas[layer] for name, layer in layers.items()} | {PROJECTION: alphas[model.decoder.final_norm]}


def _alpha(values: Tensor) -> float:
    largest = float(values.max()) or 1.0
    alphas: list[float] = torch.tensor([LARGEST_INTEGER / (largest * share) for share in CLIPS]).tolist()  # in float32
    return min(alphas, key=lambda alpha: float((rounded(values, alpha) - values).square().mean()))


def reference(loaded: LoadedModel, weights: Mapping[str, Tensor], alphas: Mapping[str, float]) -> LoadedModel:
    """Returns a copy that computes as Bergamot does, with these weights and with activations rounded by the alphas."""
    model = copy.deepcopy(loaded.model)
    for name, weight in weights.items():
        model.get_parameter(name).data.copy_(weight)

    def rounds(alpha: float) -> Callable[[nn.Module, tuple[Tensor]], Tensor]:
        return lambda _, given: rounded(given[0], alpha)

    for name, module in model.named_modules():
        if isinstance(module, Linear):
            module.register_forward_pre_hook(rounds(alphas[name]))
    # A shortlisted projection does not call a module.
    model.decoder.final_norm.register_forward_hook(lambda _, __, out: rounded(out, alphas[PROJECTION]))
    return replace(loaded, model=model.eval())
