"""The figures of a hub under load, in Markdown."""

from __future__ import annotations

from typing import Any


def table(result: dict[str, Any]) -> str:
    """The figures, in Markdown."""
    return "\n".join([*_costs(result), *(_paces(result) if "load" in result else [])])


def _costs(result: dict[str, Any]) -> list[str]:
    if "cost" not in result:
        return []
    told = "hub's CPU: {idle_percent} % of a core idle, {call_ms} ms a call, {event_us} µs an event to one viewer"
    return [told.format(**result["cost"]), ""]


def _paces(result: dict[str, Any]) -> list[str]:
    lines = ["| rounds a second | while playing | in all | of the shell's | CPU s a job | CPU ms a round |"]
    lines.append("|---|---|---|---|---|---|")
    shells = [result[name] for name in ("shell", "shell again") if name in result]
    base = {pace: sum(one[pace] for one in shells) / max(1, len(shells)) for pace in ("while_playing", "in_all")}
    for name in ("shell", "shell again", "quiet", "load"):
        if name in result:
            one = result[name]
            ratio = ", ".join(f"{one[pace] / base[pace]:.2f}" for pace in base) if shells else ""
            cpu = f"{one['cpu_s_a_job']} | {one['cpu_ms_a_round']}"
            lines.append(f"| {name} | {one['while_playing']} | {one['in_all']} | {ratio} | {cpu} |")
    load = result["load"]
    lines += ["", "| milliseconds | count | p50 | p99 | most |", "|---|---|---|---|---|"]
    rows = {"fund": load["fund_ms"], "running to first round": load["start_ms"], "settling": load["settle_ms"]}
    rows |= {"event to viewer": load["viewers"]["way_ms"]} if "viewers" in load else {}
    if "api" in load:
        rows |= {"api": load["api"], **{f"api: {name}": one for name, one in load["api"]["by"].items()}}
    for name, one in rows.items():
        cells = [str(one.get(key, "")) for key in ("count", "p50", "p99", "most")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| memory, MiB | USS | RSS |", "|---|---|---|"]
    lines += [f"| {kind} | {one['uss']} | {one['rss']} |" for kind, one in load["memory_mib"].items()]
    viewing = f", of viewers {load['viewers']['cpu']:.0%}" if "viewers" in load else ""
    refused = f"; calls refused: {load['api']['refused']}" if "api" in load else ""
    return [
        *lines,
        "",
        f"of a core: hub {load['hub_cpu']:.0%} (alone {result.get('quiet', load)['hub_cpu']:.0%}){viewing}{refused}",
        f"jobs: {dict(load['states'])}; books: {result['books']}",
    ]
