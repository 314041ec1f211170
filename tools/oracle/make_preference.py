"""Losses on preferences as TRL computes them -> tests/fixtures/preference/trl.json.

TRL's own statements run, cut out of its files by name: the part of DPOTrainer._compute_loss and
KTOTrainer._compute_loss between the log-ratios and the loss, ORPOTrainer.odds_ratio_loss and CPOTrainer.cpo_loss
(simpo). Inputs are sums of log-probabilities of made-up sequences, in double precision; gradients by autograd."""

import importlib.metadata
import importlib.util
import json
import random
import textwrap
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from common import FIXTURES

TRL = Path(importlib.util.find_spec("trl").submodule_search_locations[0])


def lines_between(file, first, last):
    """The statements of a file from the line with `first` to the one before `last`."""
    text = (TRL / file).read_text()
    begin = text.rindex("\n", 0, text.index(first)) + 1
    return textwrap.dedent(text[begin:text.rindex("\n", 0, text.index(last, begin)) + 1])


def function(file, name, names):
    text = (TRL / file).read_text()
    begin = text.rindex("\n", 0, text.index(f"def {name}(")) + 1
    indent = text[begin:].index("def")
    end = begin
    for line in text[begin:].splitlines(keepends=True):
        if end > begin and line.strip() and len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith(")"):
            break
        end += len(line)
    exec(textwrap.dedent(text[begin:end]), names)
    return names[name]


def double(value):
    return torch.tensor([value], dtype=torch.float64)


DPO = lines_between("trainer/dpo_trainer.py", "# Get the log ratios for the chosen", "if self.use_weighting:\n                # Eq (2)")
KTO = lines_between("trainer/kto_trainer.py", "# Chosen losses\n", 'self._metrics[mode]["kl"].append')
TYPES = {"dpo": "sigmoid", "ipo": "ipo", "apo_zero": "apo_zero", "apo_down": "apo_down"}


def dpo_family(loss, case, chosen, rejected):
    masks = torch.zeros(2, 64)
    masks[0, : int(case["chosen"]["tokens"])] = 1
    masks[1, : int(case["rejected"]["tokens"])] = 1
    trainer = SimpleNamespace(f_divergence_type="reverse_kl", beta=case["beta"], loss_types=[TYPES[loss]],
                              loss_weights=[1.0], use_weighting=False)
    names = dict(self=trainer, F=F, torch=torch, chosen_logps=chosen, rejected_logps=rejected, completion_mask=masks,
                 ref_chosen_logps=double(case["chosen"]["reference"]),
                 ref_rejected_logps=double(case["rejected"]["reference"]))
    exec(DPO, names)
    return names["per_sequence_loss"].sum()


def kto(case, chosen, rejected):
    trainer = SimpleNamespace(loss_type="kto", beta=case["beta"], desirable_weight=case["desirable_weight"],
                              undesirable_weight=case["undesirable_weight"])
    names = dict(self=trainer, F=F, torch=torch, chosen_logps=chosen, rejected_logps=rejected, kl=double(case["kl"]),
                 ref_chosen_logps=double(case["chosen"]["reference"]),
                 ref_rejected_logps=double(case["rejected"]["reference"]))
    exec(KTO, names)
    return names["losses"].sum()


def odds(case, chosen, rejected):
    """TRL's odds ratio; the cross entropy of the chosen answer beside it is a mean over its tokens."""
    names = dict(torch=torch, F=F)
    function(next(p for p in ("experimental/utils.py", "trainer/utils.py", "experimental/orpo/orpo_trainer.py")
                  if "def log1mexp" in (TRL / p).read_text()), "log1mexp", names)
    loss = function("experimental/orpo/orpo_trainer.py", "odds_ratio_loss", names)
    trainer = SimpleNamespace(beta=case["lambda"], accelerator=SimpleNamespace(device="cpu"))
    mean_c, mean_r = chosen / case["chosen"]["tokens"], rejected / case["rejected"]["tokens"]
    return (-mean_c - loss(trainer, mean_c, mean_r)[0]).sum()


def simpo(case, chosen, rejected):
    loss = function("experimental/cpo/cpo_trainer.py", "cpo_loss", dict(torch=torch, F=F))
    trainer = SimpleNamespace(alpha=0.0, beta=case["beta"], simpo_gamma=case["gamma"], loss_type="simpo",
                              label_smoothing=0.0, accelerator=SimpleNamespace(device="cpu"))
    return loss(trainer, chosen / case["chosen"]["tokens"], rejected / case["rejected"]["tokens"])[0].sum()


def make_case(rng, loss):
    def sequence():
        tokens = rng.randint(1, 40)
        logprob = -tokens * rng.uniform(0.05, 3)
        return dict(tokens=tokens, logprob=logprob, reference=logprob + rng.uniform(-6, 6))

    case = dict(loss=loss, beta=rng.choice([0.05, 0.1, 0.5, 2.0]), gamma=rng.uniform(0, 1), kl=rng.uniform(0, 2),
                desirable_weight=1.3, undesirable_weight=0.8, chosen=sequence(), rejected=sequence())
    case["lambda"] = rng.uniform(0.05, 1)
    chosen, rejected = (double(case[k]["logprob"]).requires_grad_() for k in ("chosen", "rejected"))
    value = {"kto": kto, "orpo": odds, "simpo": simpo}.get(loss, lambda *a: dpo_family(loss, *a))(case, chosen, rejected)
    case["d_chosen"], case["d_rejected"] = (g.item() for g in torch.autograd.grad(value, (chosen, rejected)))
    return case | dict(value=value.item())


if __name__ == "__main__":
    rng = random.Random(11)
    losses = ["dpo", "ipo", "apo_zero", "apo_down", "kto", "orpo", "simpo"]
    cases = [make_case(rng, loss) for loss in losses for _ in range(8)]
    (FIXTURES / "preference").mkdir(exist_ok=True)
    text = json.dumps({"trl": importlib.metadata.version("trl"), "cases": cases}, indent=1)
    (FIXTURES / "preference/trl.json").write_text(text + "\n")
