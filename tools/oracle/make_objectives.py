"""Objectives on top of logits: values and gradients in double precision -> tests/fixtures/objectives/.

Inputs are float32 values. Cross entropy with z-loss through the output projection, every per-token statistic
with its own random cotangent, the DPO family on packed pairs, distillation divergences."""

import numpy as np
import torch
import torch.nn.functional as F

from common import FIXTURES, max_rel, save_json, save_tensors

FOLDER = FIXTURES / "objectives"
TOKENS, WIDTH, VOCABULARY = 23, 12, 37
NO_TARGET = -1


def values(rng, *shape, scale=1.0):
    return torch.from_numpy((scale * rng.standard_normal(shape)).astype(np.float32)).double()


def gradients(loss, *leaves):
    return torch.autograd.grad(loss, leaves, retain_graph=True)


def statistics(logits, targets):
    """Log-probability of the target (0 without one), log-sum-exp and entropy of each row."""
    lse = logits.logsumexp(-1)
    log_prob = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0] - lse
    log_probs = logits - lse[:, None]
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return torch.where(targets == NO_TARGET, torch.zeros_like(lse), log_prob), lse, entropy


def make_head(rng):
    hidden, weight = values(rng, TOKENS, WIDTH), values(rng, VOCABULARY, WIDTH, scale=0.8)
    targets = torch.from_numpy(rng.integers(0, VOCABULARY, TOKENS))
    targets[[0, 7, TOKENS - 1]] = NO_TARGET
    valid = (targets != NO_TARGET).double()
    hidden.requires_grad_(), weight.requires_grad_()
    logits = hidden @ weight.T
    log_prob, lse, entropy = statistics(logits, targets)
    ce = -log_prob.sum() / valid.sum()
    z = (valid * lse.pow(2)).sum() / valid.sum()
    assert abs(ce - F.cross_entropy(logits, targets, ignore_index=NO_TARGET)) < 1e-14
    out = dict(hidden=hidden.float(), weight=weight.float(), targets=targets.int(), logits=logits)
    out.update(log_prob=log_prob, log_sum_exp=lse, entropy=entropy, cross_entropy=ce, z_loss=z)
    for name, loss in (("cross_entropy", ce), ("with_z", ce + 1e-2 * z)):
        parts = gradients(loss, logits, hidden, weight)
        out.update({f"{name}.grad_{n}": g for n, g in zip(("logits", "hidden", "weight"), parts)})
    cotangents = values(rng, 3, TOKENS)
    parts = {"log_prob": log_prob, "log_sum_exp": lse, "entropy": entropy}
    for (name, statistic), c in zip(parts.items(), cotangents):
        out[f"cotangent.{name}"] = c.float()
        out[f"{name}.grad_logits"] = gradients((c * statistic).sum(), logits)[0]
    out["all.grad_logits"] = sum(out[f"{n}.grad_logits"] for n in parts)
    save_tensors(FOLDER / "head.safetensors", out)
    notes = {"no_target": NO_TARGET, "z_coefficient": 1e-2, "reduction": "mean over tokens with a target"}
    return notes


PAIRS = 4
PREFERENCE = {
    "dpo": dict(beta=0.1, label_smoothing=0.0),
    "dpo_smoothed": dict(beta=0.3, label_smoothing=0.1),
    "ipo": dict(beta=0.1),
    "simpo": dict(beta=2.0, margin=0.5),
}


def preference_loss(name, settings, chosen, rejected, ref_chosen, ref_rejected, lengths):
    """Loss of each pair from summed log-probabilities; ipo and simpo divide by the completion's length."""
    beta = settings["beta"]
    if name.startswith("dpo"):
        h = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
        smooth = settings["label_smoothing"]
        return -(1 - smooth) * F.logsigmoid(h) - smooth * F.logsigmoid(-h)
    n_chosen, n_rejected = lengths
    if name == "ipo":
        h = (chosen - ref_chosen) / n_chosen - (rejected - ref_rejected) / n_rejected
        return (h - 1 / (2 * beta)) ** 2
    return -F.logsigmoid(beta * (chosen / n_chosen - rejected / n_rejected) - settings["margin"])


def make_preference(rng):
    """Documents chosen 0, rejected 0, chosen 1, ... packed in one row; prompt tokens have no target."""
    lengths = rng.integers(4, 9, 2 * PAIRS)
    total = int(lengths.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    targets = torch.from_numpy(rng.integers(0, VOCABULARY, total))
    document = torch.from_numpy(np.repeat(np.arange(2 * PAIRS), lengths))
    for s, n in zip(starts, lengths):
        targets[s : s + int(rng.integers(1, 3))] = NO_TARGET
        targets[s + n - 1] = NO_TARGET
    logits = values(rng, total, VOCABULARY, scale=2.0).requires_grad_()
    reference = values(rng, total, VOCABULARY, scale=2.0)

    def sums(x):
        return torch.zeros(2 * PAIRS).double().index_add(0, document, statistics(x, targets)[0])

    policy, ref = sums(logits), sums(reference)
    count = torch.zeros(2 * PAIRS).double().index_add(0, document, (targets != NO_TARGET).double())
    out = dict(logits=logits.float(), reference_logits=reference.float(), targets=targets.int())
    out.update(document_starts=torch.from_numpy(starts).int(), policy_log_prob=policy, reference_log_prob=ref)
    for name, settings in PREFERENCE.items():
        each = preference_loss(
            name, settings, policy[::2], policy[1::2], ref[::2], ref[1::2], (count[::2], count[1::2])
        )
        out[f"{name}.loss_per_pair"], out[f"{name}.loss"] = each, each.mean()
        out[f"{name}.grad_logits"] = gradients(each.mean(), logits)[0]
    save_tensors(FOLDER / "preference.safetensors", out)
    return {"cases": PREFERENCE, "pairs": PAIRS, "no_target": NO_TARGET}


def make_distillation(rng):
    """Divergence of teacher p and student q at temperature t per token; loss = t^2 mean over valid tokens."""
    student = values(rng, TOKENS, VOCABULARY, scale=2.0).requires_grad_()
    teacher = values(rng, TOKENS, VOCABULARY, scale=2.0)
    valid = torch.ones(TOKENS).double()
    valid[[3, 11]] = 0
    out = dict(student_logits=student.float(), teacher_logits=teacher.float(), valid=valid.int())
    for t in (1.0, 2.5):
        log_q, log_p = (student / t).log_softmax(-1), (teacher / t).log_softmax(-1)
        log_m = torch.logaddexp(log_p, log_q) - np.log(2.0)
        kl = lambda a, b: (a.exp() * (a - b)).sum(-1)
        each = {
            "forward_kl": kl(log_p, log_q),
            "reverse_kl": kl(log_q, log_p),
            "jensen_shannon": (kl(log_p, log_m) + kl(log_q, log_m)) / 2,
        }
        assert (
            max_rel(F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1), each["forward_kl"])
            < 1e-12
        )
        for name, per_token in each.items():
            loss = t * t * (valid * per_token).sum() / valid.sum()
            key = f"{name}.{t:g}"
            out[f"{key}.per_token"], out[f"{key}.loss"] = per_token, loss
            out[f"{key}.grad_logits"] = gradients(loss, student)[0]
    save_tensors(FOLDER / "distillation.safetensors", out)
    return {"temperatures": [1.0, 2.5], "keys": "<divergence>.<temperature>.<value>"}


def main():
    makers = {
        "head": (make_head, 51),
        "preference": (make_preference, 52),
        "distillation": (make_distillation, 53),
    }
    for name, (make, seed) in makers.items():
        notes = make(np.random.default_rng(seed))
        save_json(FOLDER / f"{name}.json", {"seed": seed, **notes}, "make_objectives.py")


if __name__ == "__main__":
    main()
