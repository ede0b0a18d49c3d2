"""A pretended accelerator: a device of torch whose tensors lie in main memory, and which is as strict as a GPU.

An operation that mixes its tensors with those of the host, or of another such device, raises. Each operation that would
make the host wait for a GPU is recorded with its line: what `torch.cuda.set_sync_debug_mode` warns about. There are two
devices, `pretended:0` and `pretended:1`.

torch registers such a device once per process, before the first backward pass, and a process that has done so cannot
be forked for training. So the tests that need it run in processes of their own (accelerator/test_pretended.py).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

import vtrans

NAME = "pretended"
PACKAGE = str(Path(vtrans.__file__).parent)
aten = torch.ops.aten

# The shapes of their results depend on values.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "bincount", "equal"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
# A tensor of the host without dimensions is a number, except for these.
STRICT = ("_fused", "cat", "stack", "gather", "scatter", "index_select", "index_copy", "embedding")
# What autocast computes in half precision on a GPU, and in float32, of the operations that vtrans uses.
HALF = ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "scaled_dot_product_attention")
EXACT = ("softmax.int", "log_softmax.int", "layer_norm", "exp", "log", "sum", "sum.dim_IntList")

_waits: list[str] = []


def missing() -> str | None:
    """Returns why this version of torch cannot pretend, if it cannot."""
    from torch.utils import backend_registration

    if hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        return None
    return f"torch {torch.__version__} cannot register a device in Python"


@contextmanager
def waits() -> Iterator[list[str]]:
    """Yields a list of what has waited for the device inside the block: the operation and its line in vtrans."""
    before = len(_waits)
    found: list[str] = []
    yield found
    found += _waits[before:]


class Pretended(Tensor):
    """A tensor of the device. `held` has its values."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device) -> "Pretended":
        held = held.resolve_conj().resolve_neg()  # the wrapper does not know that its values are lazy
        self: Pretended = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=device,
        )
        self.held = held
        return self

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.device} {self.held!r}"

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.tolist:  # torch refuses it for subclasses
            return args[0].cpu().tolist()
        with torch._C.DisableTorchFunctionSubclass():
            if function == Tensor.data.__set__:  # type: ignore[attr-defined]
                args[0].held = args[1].held
            if function is Tensor.__setitem__ and not isinstance(args[2], Tensor):  # a number, as for CUDA
                args = (*args[:2], torch.tensor(args[2], dtype=args[0].dtype))
            return function(*args, **kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares no class method
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in (aten.copy_.default, aten._to_copy.default):
            return copied(function, *args, **kwargs)
        # In inference mode, operations that consist of others come here, too.
        if (result := function.decompose(*args, **kwargs)) is not NotImplemented:
            return result
        return computed(function, args, kwargs)


def computed(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Computes an operation with the values of its tensors. Returns tensors of the same device."""
    ours: list[Pretended] = []
    theirs: list[Tensor] = []

    def opened(value: Any) -> Any:
        if isinstance(value, Pretended):
            ours.append(value)
            return value.held
        if isinstance(value, Tensor):
            theirs.append(value)
        return value

    held_args, held_kwargs = mapped(args, opened), {key: mapped(value, opened) for key, value in kwargs.items()}
    device = ours[0].device
    name = function.name().partition("::")[2].partition(".")[0]
    check(name, args, ours, theirs)
    if (asked := kwargs.get("device")) is not None:
        if torch.device(asked).type != NAME:
            raise RuntimeError(f"{name} makes a tensor of {asked} from one of {device}")
        device, held_kwargs["device"] = indexed(asked), torch.device("cpu")
    result = function(*held_args, **held_kwargs)
    if torch.Tag.inplace_view in function.tags:
        with no_dispatch():
            function(*args, **kwargs)  # changes the shape of the wrapper, too
    same = {id(one.held): one for one in ours}

    def wrapped(part: Any) -> Any:
        if not isinstance(part, Tensor):
            return part
        return same[id(part)] if id(part) in same else Pretended(part, device)

    if function.is_view and torch.is_inference_mode_enabled():
        with torch.inference_mode(ours[0].is_inference()):  # a view of another tensor is none of inference
            return mapped(result, wrapped)
    return mapped(result, wrapped)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a value, or the values of tuples and lists, changed."""
    return type(value)([mapped(part, change) for part in value]) if type(value) in (tuple, list) else change(value)


def check(name: str, args: Sequence[Any], ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """Raises RuntimeError if an operation mixes devices, and records it if a GPU would be waited for."""
    if name in INDEXING:
        check_indices(name, args, theirs)
    elif odd := [one for one in theirs if one.dim() or name.startswith(STRICT)]:
        raise RuntimeError(f"{name} mixes tensors of {ours[0].device} and {odd[0].device}")
    elif name in WAITING:
        record(name)
    if len(devices := {one.device for one in ours}) > 1:
        raise RuntimeError(f"{name} mixes tensors of {' and '.join(map(str, devices))}")


def check_indices(name: str, args: Sequence[Any], theirs: Sequence[Tensor]) -> None:
    """Records an operation whose indices come from the host or are masks, whose true elements a GPU has to count."""
    values, indices, *rest = args
    of_host = [one for one in theirs if one.dim() and not any(one is index for index in indices)]
    if of_host or not isinstance(values, Pretended):
        raise RuntimeError(f"{name} mixes tensors of {NAME} and cpu")
    masks = [index for index in indices if index is not None and index.dtype in (torch.bool, torch.uint8)]
    # torch fills by a mask if the value is a number.
    filled = rest and len(masks) == 1 and not isinstance(rest[0], Pretended) and rest[0].numel() == 1
    if masks and not filled:
        record(f"{name} by a mask")
    elif any(index is not None and not isinstance(index, Pretended) for index in indices):
        record(f"{name} by indices of the host")


def copied(function: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
    """Copies within a device, between devices, or between one and the host."""
    if function is aten._to_copy.default:
        target = kwargs.pop("device", None)
        target = first.device if target is None else torch.device(target)
        blocking = not kwargs.pop("non_blocking", False)
        if target.type == NAME:
            return Pretended(function(first.held, **kwargs), indexed(target))
        note_copy(first.device, target, blocking=blocking)
        result = function(first.held, **kwargs)
        return result.clone() if result is first.held else result
    source = args[0] if args else kwargs["src"]
    note_copy(source.device, first.device, blocking=not (args[1] if len(args) > 1 else kwargs.get("non_blocking")))
    held = [one.held if isinstance(one, Pretended) else one for one in (first, source)]
    held[0].copy_(held[1])
    return first


def note_copy(source: torch.device, target: torch.device, *, blocking: bool) -> None:
    """Records a copy between the host and a device if it waits."""
    if source.type == target.type:
        return
    if target.type == "cpu":
        assert blocking, "the host would read a copy that is still under way"
        record("copy to the host")
    elif blocking:
        record("copy from the host")


def record(what: str) -> None:
    """Records what waits, with the innermost line of vtrans."""
    frame = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    where = "elsewhere"
    if frame is not None:
        where = f"{frame.f_code.co_filename.removeprefix(PACKAGE + '/')}:{frame.f_lineno}"
    _waits.append(f"{where} {what}")


def indexed(device: Any) -> torch.device:
    """Returns the device with its number."""
    device = torch.device(device)
    return torch.device(NAME, device.index or 0)


class Module:
    """The module of a device, with the functions of torch.cuda that torch calls."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 2

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Does nothing: the values are drawn by the generator of the CPU."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


@cache
def register() -> None:
    """Registers the device in this process, once."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    torch.__future__.set_swap_module_params_on_conversion(True)  # so that moving a module keeps its ties
    Tensor.pin_memory = Tensor.clone  # type: ignore[method-assign, assignment]
    LIBRARY.impl("_copy_from", copy_from, "PrivateUse1")
    for name in ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step"):
        LIBRARY.impl(name, made(name), "PrivateUse1")
    OTHERS.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, dtype in ((HALF, None), (EXACT, torch.float32)):
        for name in names:
            LIBRARY.impl(name, under_autocast(name, dtype), "AutocastPrivateUse1")


LIBRARY: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
OTHERS: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]


def made(name: str) -> Any:
    """Returns the operation that makes tensors on the device."""
    operator, _, overload = name.partition(".")
    function = getattr(getattr(aten, operator), overload or "default")

    def make(*args: Any, device: Any, **kwargs: Any) -> Tensor:
        return Pretended(function(*args, **kwargs, device="cpu"), indexed(device))

    return make


def copy_from(source: Tensor, target: Pretended, non_blocking: bool = False) -> Tensor:
    """The copy of torch.tensor, and of lists that are indices."""
    assert not isinstance(source, Pretended)
    note_copy(source.device, target.device, blocking=not non_blocking)
    target.held.copy_(source)
    return target


def under_autocast(name: str, dtype: torch.dtype | None) -> Any:
    """Returns an operation that converts floating-point tensors of the device to `dtype` first; None: to autocast's."""
    operator = getattr(aten, name.partition(".")[0])
    overload = getattr(operator, name.partition(".")[2] or "default")
    key = torch._C._dispatch_key_parse("AutocastPrivateUse1")

    def call(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype or torch.get_autocast_dtype(NAME)

        def cast(value: Any) -> Any:
            eligible = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
            return value.to(wanted) if eligible else value

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return overload(*mapped(args, cast), **{key: cast(value) for key, value in kwargs.items()})

    return call
