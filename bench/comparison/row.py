"""A row: what we reach, what the best peer reaches, what the machine allows, and the targets; from trials that took turns."""

import dataclasses
import statistics


def spread(values):
    """(most - least) / median; None of one value."""
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


@dataclasses.dataclass
class Target:
    """`less`: the number is a cost (seconds, bytes), so ratio and share are of the other over ours."""
    name: str
    unit: str
    limit_is: str = ""  # what the limit is
    bar_ratio: float | None = None
    bar_of_limit: float | None = None
    less: bool = False


def over(a, b, less):
    return b / a if less else a / b


def make(target, ours, theirs=None, peer="", limits=None, notes=()):
    """Lists with one value per trial. `theirs`: {peer: values}; the best median counts. `limits`: per trial, in the row's unit."""
    less = target.less
    row = {"name": target.name, "unit": target.unit, "ours": statistics.median(ours), "peer": None, "peer_name": peer or None, "ratio": None,
           "limit": None, "limit_is": target.limit_is or None, "of_limit": None, "spread": {"ours": spread(ours)}, "trials": len(ours),
           "bar_ratio": target.bar_ratio, "bar_of_limit": target.bar_of_limit, "less_is_better": less, "notes": list(notes), "peers": {}}
    row["values"] = {"ours": ours}
    if theirs:
        best = (min if less else max)(theirs, key=lambda name: statistics.median(theirs[name]))
        values = theirs[best]
        # Trials that took turns are pairs; kept apart (another number of trials), only medians compare.
        ratios = [over(a, b, less) for a, b in zip(ours, values)] if len(ours) == len(values) else [over(statistics.median(ours), statistics.median(values), less)]
        row |= {"peer": statistics.median(values), "peer_name": best, "ratio": statistics.median(ratios),
                "peers": {name: statistics.median(v) for name, v in theirs.items()}}
        row["spread"] |= {"peer": spread(values), "ratio": spread(ratios)}
        row["values"]["peer"] = values
    if limits:
        shares = [over(a, b, less) for a, b in zip(ours, limits)]
        row |= {"limit": statistics.median(limits), "of_limit": statistics.median(shares)}
        row["spread"] |= {"limit": spread(limits), "of_limit": spread(shares)}
    return row


def verdict(row):
    """What of the row's bars is met: {"ratio": True, "of_limit": None}; None: no bar, or nothing to hold against it."""
    met = lambda bar, value: None if row[bar] is None or row[value] is None else row[value] >= row[bar]
    return {"ratio": met("bar_ratio", "ratio"), "of_limit": met("bar_of_limit", "of_limit")}
