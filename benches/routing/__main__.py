"""`python -m benches.routing`: compare Apache's rule with ours on the same scripts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benches.routing.simulator import SCRIPTS, Apache, Ours, Outcome, simulate

BIN_MS = 1000.0


def table(outcomes: dict[str, dict[str, Outcome]]) -> str:
    """Return the faulty broker's share, percentiles and errors, for each script and rule."""
    lines = [
        "| script | rule | share of `b` | mean | p99 | longest | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for script, rules in outcomes.items():
        for rule, outcome in rules.items():
            lines.append(
                f"| {script} | {rule} | {outcome.share('b'):.1%} | {outcome.mean:.1f} ms "
                f"| {outcome.percentile(0.99):.0f} ms | {outcome.percentile(1):.0f} ms "
                f"| {outcome.errors} of {len(outcome.took_ms)} |"
            )
    return "\n".join(lines)


def plot(outcomes: dict[str, dict[str, Outcome]], path: Path) -> None:
    """Plot the longest send of each second, and failures, over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(outcomes), 1, figsize=(9, 2.2 * len(outcomes)), sharex=True)
    for axis, (script, rules) in zip(axes, outcomes.items(), strict=True):
        for (rule, outcome), colour in zip(rules.items(), ("tab:red", "tab:blue"), strict=True):
            worst: dict[int, float] = {}
            for began, took in outcome.took_ms:
                second = int(began / BIN_MS)
                worst[second] = max(worst.get(second, 0.0), took)
            axis.plot(list(worst), list(worst.values()), label=rule, color=colour)
            failed = [at / BIN_MS for at in outcome.failed_at]
            axis.plot(failed, [3000.0] * len(failed), "x", color=colour)
        axis.set_title(script, loc="left", fontsize=9)
        axis.set_yscale("log")
        axis.set_ylabel("worst, ms")
    axes[0].legend(loc="upper right", fontsize=8)
    axes[-1].set_xlabel("seconds (x: a failed send)")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> int:
    """Parse the command line, simulate, report."""
    parser = argparse.ArgumentParser(prog="benches.routing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated time of each run")
    parser.add_argument("--plot", type=Path, help="file of the plot, .png or .svg")
    arguments = parser.parse_args()
    outcomes = {
        script: {
            rule.__class__.__name__: simulate(rule, brokers, seconds=arguments.seconds)
            for rule in (Apache(), Ours())
        }
        for script, brokers in SCRIPTS.items()
    }
    print(table(outcomes))
    if arguments.plot:
        plot(outcomes, arguments.plot)
        print(f"plot: {arguments.plot}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
