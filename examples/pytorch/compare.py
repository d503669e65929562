#!/usr/bin/env python3
"""Compares the time of a training step with NCCL and with cecl instead of NCCL.

    examples/pytorch/compare.py --cecl-run /opt/cecl/bin/cecl-run --ranks 2 -- --batch 1

With --nccl FILE both sides use that NCCL. Arguments after -- go to fsdp2.py. Each run starts torchrun anew, so runs are
many seconds apart. The two sides take turns, so GPUs that slow down as they grow warm slow both sides alike.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fsdp2.py")


def run_once(prefix, environment, args, rest, folder):
    result = os.path.join(folder, "step.json")
    command = [*prefix, sys.executable, "-m", "torch.distributed.run"]
    command += ["--nproc-per-node", str(args.ranks), PROGRAM, "--json", result, *rest]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
    with open(result, encoding="utf-8") as file:
        return json.load(file)


def summary(runs):
    medians = [statistics.median(run["step_ms"]) for run in runs]
    return {
        "median": statistics.median(medians),
        "least": min(medians),
        "most": max(medians),
        "rounds": medians,
        "last_loss": runs[-1]["losses"][-1],
    }


def chart(sides):
    """Returns the content of a JSON file, as in docs/data: the shape of the runs, and the times of each side."""
    one = sides["nccl"][0]
    kept = {key: one[key] for key in ("ranks", "blocks", "width", "sequence", "batch")}
    return {"fsdp2": kept, "step_ms": {side: summary(runs) for side, runs in sides.items()}}


def parse():
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cecl-run", default="cecl-run", help="where cecl-run is")
    parser.add_argument("--policy", default="all", help="the policy that cecl-run gets")
    parser.add_argument("--nccl", metavar="FILE", help="the NCCL of both sides; else PyTorch's own")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the results")
    return parser.parse_args(own), rest


def main():
    args, rest = parse()
    sides = {"nccl": [], "cecl": []}
    prefixes = {"nccl": [], "cecl": [args.cecl_run, "--policy", args.policy]}
    environments = {"nccl": {}, "cecl": {}}
    if args.nccl:
        prefixes["cecl"] += ["--nccl", args.nccl]
        environments["nccl"]["LD_PRELOAD"] = os.path.abspath(args.nccl)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for side, runs in sides.items():
                runs.append(run_once(prefixes[side], environments[side], args, rest, folder))
    got = chart(sides)
    results = got["step_ms"]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(got, file, indent=1)
    for side, got in results.items():
        print(
            f"{side}: a step {got['median']:.1f} ms ({got['least']:.1f} .. {got['most']:.1f}), "
            f"last loss {got['last_loss']:.5f}"
        )
    print(f"ratio {results['nccl']['median'] / results['cecl']['median']:.3f}")


if __name__ == "__main__":
    main()
