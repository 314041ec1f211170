"""modded-nanogpt's record model and its two optimizers, small and in double precision, written from the published script's
formulas: tests/fixtures/record/<case>/.

    python tools/oracle/modded_nanogpt.py

What is smaller than in the script: all extents, blocks of 16 tokens or fewer instead of 128, padding of the head to 16
or less, and 20 steps. What differs otherwise: no bfloat16 anywhere (Newton-Schulz included), the loss is the mean over tokens, weights
that the script starts at zero are random (else most gradients of the first step vanish), and the attention mask is a
dense matrix made from the script's lists of blocks.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F

from common import FIXTURES, NoSinglePrecision, save_json, save_tensors

SEED = 23
STEPS, ROWS = 20, 2
WARMUP = 10
EPS = 2.0**-23


@dataclass
class Sizes:
    layers: int
    width: int
    heads: int
    head: int  # channels of one
    vocab: int
    multiple: int  # of the head's rows
    tables: int
    no_attention: int  # a layer; -1: none
    long: tuple  # other layers have the short window
    block: int
    row: int
    window_growth: int

    @property
    def padded(self):
        return -(-self.vocab // self.multiple) * self.multiple

    @property
    def separator(self):  # opens each document
        return self.vocab - 1


CASES = {
    "even": Sizes(8, 16, 2, 8, 61, 16, 3, 4, (0, 4, 7), 16, 128, 60),
    "odd": Sizes(4, 13, 3, 4, 53, 2, 1, 2, (0, 3), 8, 48, 37),
    "wide": Sizes(2, 26, 1, 12, 50, 11, 1, -1, (1,), 12, 60, 48),
}
LR = {"head": 0.22, "embed": 0.6, "scalar": 0.04, "matrix": 0.05}


def initial_weights(s, g):
    normal = lambda *shape, std=1.0: std * torch.randn(*shape, generator=g)
    w = {"embed": normal(s.vocab, s.width), "head": normal(s.padded, s.width, std=0.3)}
    for i in range(s.tables):
        w[f"value_embed.{i}"] = normal(s.vocab, s.heads * s.head)
    for i in range(s.layers):
        if i != s.no_attention:
            w[f"{i}.qkv"] = normal(3, s.heads * s.head, s.width, std=0.2)
            w[f"{i}.out"] = normal(s.width, s.heads * s.head, std=0.2)
            w[f"{i}.value_lambdas"] = 0.5 + normal(2, std=0.1)
        w[f"{i}.fc"] = normal(4 * s.width, s.width, std=0.2)
        w[f"{i}.proj"] = normal(s.width, 4 * s.width, std=0.1)
        w[f"{i}.lambdas"] = torch.tensor([1.0, 0.0]) + normal(2, std=0.1)
    w["skip_weights"] = 1 + normal(s.layers // 2, std=0.1)
    # float32 values, so that runs in single precision start from the same model
    return {name: torch.from_numpy(value.numpy().astype("float32").astype("float64")) for name, value in w.items()}


def norm(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def rotate(s, x):  # [T, H, K]
    quarter = s.head // 4
    frequencies = torch.cat([(1 / 1024) ** torch.linspace(0, 1, quarter), torch.zeros(quarter)])
    angle = torch.arange(x.shape[0])[:, None].double() * frequencies
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    x1, x2 = x.chunk(2, -1)
    return torch.cat([x1 * cos + x2 * sin, -x1 * sin + x2 * cos], -1)


def mask_of(s, ids, window_blocks):
    """The script's lists of partial and full key blocks per query block, cut to the window, as a dense [T, T] matrix."""
    docs = (ids == s.separator).cumsum(0)
    t = torch.arange(s.row)
    allowed = (t[:, None] >= t) & (docs[:, None] == docs)
    low, high = docs.view(-1, s.block)[:, 0], docs.view(-1, s.block)[:, -1]
    b = torch.arange(s.row // s.block)
    some = (b[:, None] >= b) & (low[:, None] <= high) & (high[:, None] >= low)
    every = (b[:, None] > b) & (low[:, None] == high) & (high[:, None] == low)
    visited = torch.zeros(s.row, s.row, dtype=torch.bool)
    for q in range(s.row // s.block):
        partial = [k for k in reversed(range(s.row // s.block)) if some[q, k] and not every[q, k]]
        full = [k for k in reversed(range(s.row // s.block)) if every[q, k]]
        kept = partial[: max(window_blocks - len(full), 1)] + full[: max(window_blocks - 1, 0)]
        for k in kept:
            visited[q * s.block : (q + 1) * s.block, k * s.block : (k + 1) * s.block] = True
    return visited & allowed


def forward(s, w, ids, window_blocks):
    """Logits of one row."""
    long, short = mask_of(s, ids, window_blocks), mask_of(s, ids, window_blocks // 2)
    tables = [w[f"value_embed.{i}"][ids] for i in range(s.tables)]
    values = tables + [None] * (s.layers - 2 * s.tables) + tables
    x = x0 = norm(w["embed"][ids])
    skips, half = [], s.layers // 2
    for i in range(s.layers):
        if i >= half:
            x = x + w["skip_weights"][i - half] * skips.pop()
        x = w[f"{i}.lambdas"][0] * x + w[f"{i}.lambdas"][1] * x0
        if i != s.no_attention:
            q, k, v = (norm(x) @ w[f"{i}.qkv"].flatten(0, 1).T).view(s.row, 3, s.heads, s.head).unbind(1)
            q, k = rotate(s, norm(q)), rotate(s, norm(k))
            v = w[f"{i}.value_lambdas"][0] * v
            if values[i] is not None:
                v = v + w[f"{i}.value_lambdas"][1] * values[i].view_as(v)
            score = 0.12 * torch.einsum("qhk,shk->hqs", q, k)
            score = score.masked_fill(~(long if i in s.long else short), -math.inf)
            x = x + torch.einsum("hqs,shk->qhk", score.softmax(-1), v).flatten(1) @ w[f"{i}.out"].T
        x = x + F.relu(norm(x) @ w[f"{i}.fc"].T).square() @ w[f"{i}.proj"].T
        if i < half:
            skips.append(x)
    return 30 * torch.sigmoid(norm(x) @ w["head"].T / (7.5 * s.width**0.5))


def loss_of(s, w, inputs, targets, step):
    blocks = max(1, math.ceil(s.window_growth * (step / STEPS) / s.block))
    logits = torch.stack([forward(s, w, row, blocks) for row in inputs])
    return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def orthogonalised(g):
    x = g.mT if g.size(-2) > g.size(-1) else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if g.size(-2) > g.size(-1) else x


def group_of(name, value):
    if value.dim() < 2:
        return "scalar"
    return "head" if name == "head" else "embed" if "embed" in name else "matrix"


def train(s, w, batches):
    w = {name: value.clone().requires_grad_() for name, value in w.items()}
    of = lambda kind: [v for n, v in w.items() if group_of(n, v) == kind]
    adam = torch.optim.Adam(
        [dict(params=of(k), lr=LR[k]) for k in ("head", "embed", "scalar")], betas=(0.8, 0.95), eps=1e-10
    )
    rates = [group["lr"] for group in adam.param_groups]
    momentum = {id(v): torch.zeros_like(v) for v in of("matrix")}
    losses = []
    for step, (inputs, targets) in enumerate(batches):
        _, loss = loss_of(s, w, inputs, targets, step)
        losses.append(loss.item())
        for v in w.values():
            v.grad = None
        loss.backward()
        x = step / STEPS
        decay = 1.0 if x < 0.6 else (1 - x) / 0.4 + (1 - (1 - x) / 0.4) * 0.1
        for group, rate in zip(adam.param_groups, rates):
            group["lr"] = rate * decay
        adam.step()
        mu = 0.85 + min(step / WARMUP, 1) * 0.1
        with torch.no_grad():
            for v in of("matrix"):
                m = momentum[id(v)].lerp_(v.grad, 1 - mu)
                update = orthogonalised(v.grad.lerp(m, mu))
                v -= LR["matrix"] * decay * max(1, v.size(-2) / v.size(-1)) ** 0.5 * update
    return losses


def make(name, s):
    g = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(0, s.separator, (STEPS, ROWS, s.row + 1), generator=g)
    likely = torch.rand(tokens.shape, generator=g) < 0.7  # something to learn: most tokens follow from the one before
    for t in range(1, s.row + 1):
        tokens[..., t] = torch.where(likely[..., t], (3 * tokens[..., t - 1] + 7) % s.separator, tokens[..., t])
    tokens[torch.rand(tokens.shape, generator=g) < 1 / 30] = s.separator
    batches = [(t[:, :-1], t[:, 1:]) for t in tokens]
    with NoSinglePrecision():
        w = initial_weights(s, g)
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        logits, loss = loss_of(s, leaves, *batches[0], 0)
        loss.backward()
        losses = train(s, w, batches)
    folder = FIXTURES / "record" / name
    save_tensors(folder / "weights.safetensors", {name: value.float() for name, value in w.items()})
    save_tensors(
        folder / "reference.safetensors",
        {
            "tokens": tokens.int(),
            "logits": logits,
            "losses": torch.tensor(losses),
            **{"grad." + name: value.grad for name, value in leaves.items()},
        },
    )
    notes = dict(seed=SEED, steps=STEPS, rows=ROWS, momentum_warmup=WARMUP, lr=LR, sizes=asdict(s))
    parameters = sum(value.numel() for value in w.values())
    save_json(folder / "reference.json", {**notes, "parameters": parameters, "loss": loss.item()}, "modded_nanogpt.py")
    print(name, parameters, losses[0], losses[-1])


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    for name, sizes in CASES.items():
        make(name, sizes)


if __name__ == "__main__":
    main()
