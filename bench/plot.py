#!/usr/bin/env python3
"""Draws what cecl_perf --json and cecl_overlap --json wrote: bus bandwidth over size, or times beside a
GEMM. Ends with 0, 2 where an argument or a file was wrong, 3 where matplotlib is missing."""
import argparse
import json
import os
import sys

USAGE, MISSING = 2, 3
FORMATS = (".svg", ".png")
# nccl-tests' busbw: so many times a row's bytes over its time, with n ranks.
BUS = {
    "all_gather": lambda n: n - 1,
    "alltoall": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: n - 1,
    "all_reduce": lambda n: 2 * (n - 1) / n,
}
# By the beginning of a side's name, the longest first; colours that colour-blind eyes tell apart.
COLOURS = [("nccl-ce", "#009e73"), ("nccl windows", "#009e73"), ("nccl", "#d55e00"),
           ("cecl out, SM", "#56b4e9"), ("cecl", "#0072b2")]


class Refused(Exception):
    """Something is wrong with an argument or a file; the words say what was expected."""


def colour_of(side):
    return next((colour for name, colour in COLOURS if side.startswith(name)), "#555555")


def bytes_word(count):
    for shift, suffix in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {suffix}"
    return f"{count} B"


def read(name):
    try:
        with open(name, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise Refused(f"{name}: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{name}: not JSON: {error}") from error
    if not isinstance(data, dict) or not ("rows" in data or "sizes" in data):
        raise Refused(f"{name}: what cecl_perf --json or cecl_overlap --json wrote expected")
    return data


def count_errors(data):
    """Bytes that the run itself found wrong; a chart of them would mislead."""
    rows = data.get("rows") or [side for size in data["sizes"] for side in size["sides"]]
    return sum(row["errors"] or 0 for row in rows)


def lines_of(data):
    """{(side, in place): [(bytes, GB/s)]}, of cecl_perf."""
    if data["op"] not in BUS:
        raise Refused(f"op {data['op']}: one of {', '.join(BUS)} expected")
    if data["ranks"] < 2:
        raise Refused("one rank: nothing crosses, there is no bandwidth")
    bus, lines = BUS[data["op"]](data["ranks"]), {}
    for row in data["rows"]:
        for side, us in row["us"].items():
            point = (row["bytes"], row["bytes"] * bus / us * 1e-3)
            lines.setdefault((side, row["in_place"]), []).append(point)
    if not lines:
        raise Refused("no row: at least one size expected")
    return lines


def draw_bandwidth(data, axes):
    for (side, in_place), points in lines_of(data).items():
        sizes, rates = zip(*sorted(points))
        axes.plot(sizes, rates, color=colour_of(side), marker="o" if in_place else "s",
                  linestyle="-" if in_place else "--", markersize=4,
                  label=f"{side}, {'in' if in_place else 'out of'} place")
    ticks = sorted({row["bytes"] for row in data["rows"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [bytes_word(t) for t in ticks], rotation=45, ha="right")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bytes a rank")
    axes.set_ylabel("bus bandwidth, GB/s")
    device = "GPUs" if data["device"] == "cuda" else "the host device"
    axes.set_title(f"{data['op']}, {data['ranks']} ranks on {device}, {data['type']}")
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=8)


def bars_of(size):
    """[(label, colour, {key: (median, first quartile, third)})] of one size, the GEMM alone first."""
    def value(holder, key):
        median = holder.get(key)
        low, high = holder.get(key + "_quartiles", (median, median))
        return None if median is None else (median, low, high)
    bars = [("GEMM alone", "#999999", {"with": value(size, "gemm_alone_ms")})]
    for side in size["sides"]:
        bars.append((side["side"], colour_of(side["side"]),
                     {"with": value(side, "with_gemm_ms"), "after": value(side, "sequential_ms")}))
    return bars


def draw_bar(axes, place, bar, kind, label):
    name, colour, values = bar
    if not values.get(kind):
        return
    median, low, high = values[kind]
    if kind == "after":
        looks = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.2}
    elif " out" in name: # a hatch has the edge's colour
        looks = {"facecolor": colour, "edgecolor": "white", "hatch": "//", "linewidth": 0}
    else:
        looks = {"facecolor": colour}
    axes.bar(place, median, width=0.8, label=label, **looks)
    axes.errorbar(place, median, yerr=[[median - low], [high - median]], color="black", capsize=2,
                  linewidth=0.8)


def draw_overlap(data, axes):
    place, centres = 0, []
    for index, size in enumerate(data["sizes"]):
        first = place
        for bar in bars_of(size):
            for kind, word in (("with", ""), ("after", ", after the GEMM")):
                if bar[2].get(kind):
                    draw_bar(axes, place, bar, kind, bar[0] + word if index == 0 else None)
                    place += 1
        centres.append((first + place - 1) / 2)
        place += 1
    if not centres:
        raise Refused("no size: at least one expected")
    axes.set_xticks(centres, [bytes_word(size["bytes"]) + " a rank" for size in data["sizes"]])
    axes.set_ylabel("ms until all is done: median, quartiles")
    axes.set_title(f"{data['op']} beside a GEMM of {data['gemm']}, {data['ranks']} ranks on GPUs")
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))


def load_pyplot():
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot
    except ImportError:
        return None
    # Text stays text, and equal input gives an equal file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cecl"})
    return pyplot


def draw(data, output, pyplot):
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    (draw_bandwidth if "rows" in data else draw_overlap)(data, axes)
    metadata = {"Date": None} if output.endswith(".svg") else None
    figure.savefig(output, dpi=150, metadata=metadata)
    pyplot.close(figure)


def take_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", help="what cecl_perf --json or cecl_overlap --json wrote")
    parser.add_argument("-o", "--output", help="a name that ends in .svg or .png; default: the "
                        "input's with .svg")
    return parser.parse_args()


def perform(arguments):
    output = arguments.output or os.path.splitext(arguments.input)[0] + ".svg"
    if not output.endswith(FORMATS):
        raise Refused(f"{output}: a name that ends in {' or '.join(FORMATS)} expected")
    data = read(arguments.input)
    try:
        wrong = count_errors(data)
        if wrong:
            raise Refused(f"{arguments.input}: {wrong} bytes were wrong in this run")
        pyplot = load_pyplot()
        if not pyplot:
            print("plot.py: matplotlib is missing: pip install matplotlib (Debian: "
                  "python3-matplotlib)", file=sys.stderr)
            return MISSING
        draw(data, output, pyplot)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise Refused(f"{arguments.input}: not as cecl writes it: {error!r}") from error
    except OSError as error:
        raise Refused(f"{output}: {error.strerror}") from error
    print(output)
    return 0


def main():
    try:
        return perform(take_arguments())
    except Refused as refused:
        print(f"plot.py: {refused}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
