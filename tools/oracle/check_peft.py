"""Loads a base model and a folder of adapters that Ingot exported into PEFT, and compares the logits with Ingot's.

  check_peft.py BASE ADAPTERS REFERENCE     REFERENCE: safetensors with `input_ids` and `logits`; exits with 1 where they
                                            differ by more than 1e-9 of the largest logit (all in double precision)"""

import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from common import double_precision, max_rel


def main():
    base, adapters, reference = sys.argv[1:]
    expected = load_file(reference)
    loaded = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    loaded.config._attn_implementation = "eager"
    weights = {name: value.double() for name, value in loaded.state_dict().items()}
    with double_precision():  # tables of angles in double too
        model = type(loaded)(loaded.config).double().eval()
        model.load_state_dict(weights)
    model = PeftModel.from_pretrained(model, adapters, autocast_adapter_dtype=False).double().eval()
    with double_precision(), torch.no_grad():
        logits = model(expected["input_ids"].long()[None]).logits[0]
    difference = max_rel(logits, expected["logits"])
    print(f"PEFT: logits differ by {difference:.1e}")
    return 0 if difference <= 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
