"""All rows by name, in the order of what they are about."""

import dataclasses
from collections.abc import Callable
from functools import partial

from . import inference, operations, text_and_files, training


@dataclasses.dataclass
class Rows:
    part: str  # of the page
    about: str
    measure: Callable  # context -> list of rows
    usual: bool = True  # measured when no row is named


ROWS = {
    "dense-10m": Rows("Training", "training step of the dense GPT of 10.7M parameters (6 layers, 384, T 256, batch 12)", partial(training.step_rows, "dense-10m")),
    "dense-124m": Rows("Training", "the same of 124M parameters (GPT-2's shape, T 256, batch 4)", partial(training.step_rows, "dense-124m")),
    "llmc-10m": Rows("Training", "the dense GPT of 10.7M beside llm.c", partial(training.beside_llmc, "dense-10m")),
    "llmc-124m": Rows("Training", "that of 124M beside llm.c: two minutes", partial(training.beside_llmc, "dense-124m")),
    "moe": Rows("Training", "8 experts of 768, top-2, in the 10.7M shape", partial(training.step_rows, "moe")),
    "moe-over-dense": Rows("Training", "that beside our dense model of equal active FLOPs", training.moe_over_dense),
    "zaya-small": Rows("Training", "ZAYA1-small (CCA, MLP router, top-1 of 16) at the dense model's efficiency", training.zaya_over_dense),
    "memory-124m": Rows("Training", "the most memory of a 124M training step", training.memory),
    "gemm": Rows("Operations", "products of the 124M shape, all forms, fp32 and bf16 operands, the worst of each", operations.gemm),
    "gemm-experts": Rows("Operations", "products of 8 experts with 256, 128, 64 and 32 rows each", operations.gemm_experts),
    "attention": Rows("Operations", "forward and backward of causal attention of 1,024 and 4,096 tokens", operations.attention),
    "adamw": Rows("Operations", "clipping and AdamW on 124M parameters against the bytes that they move", operations.adamw),
    "muon": Rows("Operations", "Newton-Schulz of Muon against plain products", operations.muon),
    "decode": Rows("Inference", "prefill and decoding of GPT-2's shape in f32, bf16 and int8, beside llama.cpp", inference.decode),
    "batches": Rows("Inference", "many sequences at a time: beside their prompts, the read rate and llama.cpp", inference.batches),
    "8b": Rows("Inference", "zaya1-8b with random weights: 20 GiB of memory and minutes", inference.eight_billion, usual=False),
    "tokenizer-encode": Rows("Text and files", "encoding beside Hugging Face's tokenizers", partial(text_and_files.tokenizer, "encode")),
    "tokenizer-train": Rows("Text and files", "learning 32,768 tokens of 128 MiB of text beside theirs", partial(text_and_files.tokenizer, "train")),
    "checkpoint": Rows("Text and files", "pause and write rate of a 124M checkpoint with its optimizer", text_and_files.checkpoint),
    "start-up": Rows("Text and files", "from the program's start to the end of the first step of a small model", text_and_files.start_up),
}


def listing():
    width = max(map(len, ROWS))
    return "\n".join(f"{name:<{width}}  {r.about}{'' if r.usual else ' (only when named)'}" for name, r in ROWS.items())


def merged(old, new):
    """Rows measured again replace their old ones; in the order of ROWS."""
    again = {r["rows"] for r in new}
    order = list(ROWS)
    return sorted([r for r in old if r["rows"] not in again and r["rows"] in ROWS] + new, key=lambda r: order.index(r["rows"]))
