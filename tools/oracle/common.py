"""Shared by the oracle scripts: library code in double precision, fixture files with their provenance."""

import contextlib
import json
import platform
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
MAX_FILE_BYTES = 1_000_000


class NoSinglePrecision(TorchDispatchMode):
    """Fails at the first operation that yields a real tensor narrower than double."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(item, torch.Tensor) and item.is_floating_point() and item.dtype != torch.float64:
                raise AssertionError(f"{func} produced {item.dtype} inside a double-precision run")
        return out


@contextlib.contextmanager
def double_precision(proven=True):
    """Libraries cast to float32 by name (norm statistics, softmax, rotary angles). Inside this context those
    names mean float64, and (unless told not to, for speed) NoSinglePrecision proves that nothing narrower slipped
    through."""
    saved = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        with NoSinglePrecision() if proven else contextlib.nullcontext():
            yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved[:3]
        torch.set_default_dtype(saved[3])


def versions():
    found = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__.split("+")[0],
    }
    for name in ("transformers", "safetensors", "xxhash"):
        with contextlib.suppress(ImportError):
            module = __import__(name)
            found[name] = getattr(module, "__version__", None) or getattr(module, "VERSION", None)
    return found


def max_rel(a, b):
    """max |a - b| / max |b|: the measure that every parity test uses."""
    a, b = a.detach(), b.detach()
    scale = b.abs().max().item()
    return (a - b).abs().max().item() / scale if scale > 0 else (a - b).abs().max().item()


def save_tensors(path, tensors):
    """Writes one safetensors file of contiguous tensors; refuses files above the repository's limit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clean = {name: torch.as_tensor(value).detach().contiguous().clone() for name, value in tensors.items()}
    save_file(clean, str(path), metadata={"format": "pt"})
    path.chmod(0o644)
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise SystemExit(f"{path.name} has {size} bytes; fixtures stay below {MAX_FILE_BYTES}")


def save_json(path, content, generator):
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"generator": f"tools/oracle/{generator}", "versions": versions(), **content}
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
