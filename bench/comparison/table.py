"""Rows as lines of a terminal and as Markdown."""

from .row import verdict


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def against(row, what):
    """A ratio or a share, its spread, and its bar with what became of it."""
    value, bar = row[what], row["bar_" + what]
    if value is None:
        return "-" if bar is None else f"- (wanted {bar:.2f})"
    text = f"{value:.2f}" + (f" ±{50 * row['spread'][what]:.0f}%" if row["spread"].get(what) is not None else "")
    if bar is not None:
        text += f" {'>=' if verdict(row)[what] else '<'} {bar:.2f}"
    return text


def peer_text(row):
    """The peer, or why there is none."""
    peer = row["peer_name"] or ""
    if row["peer"] is None and peer:
        return f"PEER MISSING: {peer}" if row["bar_ratio"] is not None else f"no peer: {peer}"
    return peer


def heading():
    return f"{'row':<24}{'unit':<10}{'ours':>10}{'peer':>10}  {'ratio':<20}{'of limit':<20}others  peer, notes"


def line(row):
    return (f"{row['name']:<24}{row['unit']:<10}{number(row['ours']):>10}{number(row['peer']):>10}  {against(row, 'ratio'):<20}{against(row, 'of_limit'):<20}"
            f"{100 * row['others']:>5.0f}%  {'; '.join([x for x in [peer_text(row), *row['notes']] if x])}")


def markdown(rows, parts):
    """Tables by part of the page; `parts`: {name of rows: part}."""
    out = []
    for part in dict.fromkeys(parts.values()):
        mine = [r for r in rows if parts.get(r["rows"]) == part]
        if not mine:
            continue
        out += [f"### {part}", "", "| row | unit | ours | peer | ratio | limit | of limit | trials |", "|---|---|---|---|---|---|---|---|"]
        for r in mine:
            out.append(f"| {r['name']} | {r['unit']} | {number(r['ours'])} | {number(r['peer'])} | {cell(r, 'ratio')} | {number(r['limit'])} | {cell(r, 'of_limit')} | {r['trials']} |")
        out.append("")
        out += [f"- {r['name']}: {'; '.join(x for x in [peer_text(r), r['limit_is'] and 'limit: ' + r['limit_is'], *r['notes']] if x)}" for r in mine]
        out.append("")
    return "\n".join(out).rstrip()


def cell(row, what):
    """As in the terminal, a missed bar in bold."""
    text = against(row, what).replace("<", "&lt;").replace(">=", "≥")
    return f"**{text}**" if verdict(row)[what] is False else text


BEGIN, END = "<!-- written by bench/compare: begin -->", "<!-- written by bench/compare: end -->"


def page(text, machine, rows, parts):
    """The page with the machine and the tables between its marks."""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"the page has no lines '{BEGIN}' and '{END}'")
    facts = (f"Measured on {machine['processor']}, {machine['cores']} cores, caches {', '.join(machine['caches'])}, {machine['memory_gib']:.0f} GiB, "
             f"Linux {machine['kernel']}; features: {', '.join(machine['features'])}.")
    before, after = text[:text.index(BEGIN)], text[text.index(END):]
    return f"{before}{BEGIN}\n{facts}\n\n{markdown(rows, parts)}\n{after}"
