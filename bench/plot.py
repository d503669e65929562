#!/usr/bin/env python3
"""Draws measurements as SVG or PNG: bus bandwidth over size (cecl_perf --json), times beside a GEMM divided by
the GEMM's alone (cecl_overlap --json), a training's steps (training.json of scripts/compare_training.sh),
small calls beside bulk ones (docs/data/beside.json), steps of PyTorch's FSDP2 (examples/pytorch/compare.py --json).
Exits with 0, with 2 for a wrong argument or file, with 3 when matplotlib is missing."""
import argparse
import json
import os
import sys

USAGE, MISSING = 2, 3
FORMATS = (".svg", ".png")
# nccl-tests' busbw is this factor, for n ranks, times a row's bytes divided by its time.
BUS = {
    "all_gather": lambda n: n - 1,
    "alltoall": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: n - 1,
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "sendrecv": lambda n: 1,
}
# Colours by the beginning of a side's name, the longest first. Colour-blind readers can tell them apart.
COLOURS = [("cecl, urgent", "#56b4e9"), ("cecl, CECL_SM_ALLOW", "#cc79a7"), ("nccl-ce", "#009e73"), ("nccl windows", "#009e73"), ("nccl", "#d55e00"),
           ("cecl out, SM", "#56b4e9"), ("cecl", "#0072b2")]
NAMES = [("nccl-ce", "NCCL on copy engines"), ("nccl windows", "NCCL on windows"), ("nccl", "NCCL"),
         ("cecl", "cecl"), ("none", "no communication")]


class Refused(Exception):
    """An argument or a file is wrong; the message says what was expected."""


def colour_of(side):
    return next((colour for name, colour in COLOURS if side.startswith(name)), "#555555")


def name_of(side):
    """A side's name for readers, without the placement."""
    return next((name for start, name in NAMES if side.startswith(start)), side)


def name_of_placed(side):
    """A side's name for readers, with the placement that sides such as "nccl-ce out" and "cecl out, SM allowed" have."""
    places = {" in": ", in place", " out": ", out of place"}
    for short, place in places.items():
        start, found, rest = side.partition(short)
        if found and (not rest or rest.startswith(",")):
            return name_of(start) + place + rest
    return side


def op_name(data):
    return {"alltoall": "all-to-all"}.get(data["op"], data["op"].replace("_", "-"))


def parameters_word(count):
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


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
    if not isinstance(data, dict) or not KINDS.keys() & data.keys():
        raise Refused(f"{name}: what cecl_perf --json, cecl_overlap --json or compare_training.sh "
                      "wrote expected")
    return data


def count_errors(data):
    """How many bytes the run found wrong. If there are any, a chart would mislead."""
    rows = data.get("rows") or [side for size in data.get("sizes", []) for side in size["sides"]]
    return sum(row["errors"] or 0 for row in rows)


def lines_of(data):
    """{(side, in place): [(bytes, GB/s)]} from a file of cecl_perf."""
    if data["op"] not in BUS:
        raise Refused(f"op {data['op']}: one of {', '.join(BUS)} expected")
    if data["ranks"] < 2:
        raise Refused("one rank: nothing crosses a link, so there is no bandwidth")
    bus, lines = BUS[data["op"]](data["ranks"]), {}
    for row in data["rows"]:
        for side, us in row["us"].items():
            point = (row["bytes"], row["bytes"] * bus / us * 1e-3)
            lines.setdefault((side, row["in_place"]), []).append(point)
    if not lines:
        raise Refused("no row: at least one size expected")
    return lines


def draw_bandwidth(data, figure):
    axes = figure.subplots()
    for (side, in_place), points in lines_of(data).items():
        sizes, rates = zip(*sorted(points))
        axes.plot(sizes, rates, color=colour_of(side), marker="o" if in_place else "s",
                  linestyle="-" if in_place else "--", markersize=4,
                  label=f"{name_of(side)}, {'in' if in_place else 'out of'} place")
    ticks = sorted({row["bytes"] for row in data["rows"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [bytes_word(t) for t in ticks], rotation=45, ha="right")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bytes a rank")
    axes.set_ylabel("bus bandwidth, GB/s")
    device = "GPUs" if data["device"] == "cuda" else "the host device"
    axes.set_title(f"{op_name(data)}, {data['ranks']} ranks on {device}", fontsize=11)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.legend(fontsize=8)


def sequence_of(size, side):
    """(median, first quartile, third) of the time of a GEMM and then a collective, divided by the same round's GEMM."""
    sequential, gemm = side.get("rounds_sequential_ms"), size["rounds_gemm_alone_ms"]
    if not sequential:
        return None
    ratios = sorted(a / b for a, b in zip(sequential, gemm))
    middle = len(ratios)
    median = (ratios[(middle - 1) // 2] + ratios[middle // 2]) / 2
    return median, ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]


def ratios_of(size):
    """[(side, ratio beside the GEMM, ratio after it or None)]; a ratio is (median, first quartile, third)."""
    return [(side["side"], (side["to_gemm_alone"], *side["to_gemm_alone_quartiles"]),
             sequence_of(size, side)) for side in size["sides"]]


def draw_bar(axes, place, ratio, colour, side, hollow):
    median, low, high = ratio
    if hollow:
        looks = {"facecolor": "white", "edgecolor": colour, "linewidth": 1}
    elif " out" in side:  # a hatch has the edge's colour
        looks = {"facecolor": colour, "edgecolor": "white", "hatch": "//", "linewidth": 0}
    else:
        looks = {"facecolor": colour}
    axes.barh(place, median, height=0.38 if hollow else 0.6, **looks)
    axes.errorbar(median, place, xerr=[[median - low], [high - median]], color="black", capsize=2,
                  linewidth=0.8)
    axes.annotate(f"{median:.3f}", (high, place), xytext=(5, 0), textcoords="offset points",
                  va="center", fontsize=8)


def draw_overlap_size(size, axes):
    place, places, names, most = 0, [], [], 1
    for side, beside, after in ratios_of(size):
        for ratio, word in ((beside, ""), (after, "one after the other")):
            if ratio:
                draw_bar(axes, place, ratio, colour_of(side), side, bool(word))
                places.append(place)
                names.append(word or name_of_placed(side))
                most = max(most, ratio[2])
                place += 0.6 if word == "" and after else 1
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.15)
    axes.set_xlabel("time until all is done / the GEMM alone: median, quartiles", fontsize=9)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(f"{bytes_word(size['bytes'])} a rank; the GEMM alone takes "
                   f"{size['gemm_alone_ms']:.3f} ms", fontsize=10)


def draw_overlap(data, figure):
    if not data["sizes"]:
        raise Refused("no size: at least one expected")
    bars = sum(2 if after else 1 for size in data["sizes"] for _, _, after in ratios_of(size))
    figure.set_size_inches(7.5, 0.9 + 0.6 * len(data["sizes"]) + 0.26 * bars)
    rows = figure.subplots(len(data["sizes"]), 1, squeeze=False)
    for axes, size in zip(rows[:, 0], data["sizes"]):
        draw_overlap_size(size, axes)
    figure.suptitle(f"{op_name(data)} beside a GEMM of {data['gemm']}³, {data['ranks']} ranks on GPUs",
                    fontsize=11)


def draw_training(data, figure):
    what, axes = data["training"], figure.subplots()
    figure.set_size_inches(6, 3.6)
    for place, side in enumerate(data["sides"]):
        step, exposed = side["step_ms"], side["exposed_ms"]["median"]
        colour, first = colour_of(side["comm"]), place == 0
        axes.bar(place, step["median"] - exposed, width=0.55, color=colour)
        axes.bar(place, exposed, bottom=step["median"] - exposed, width=0.55, color="#222222",
                 label="of it waiting for communication" if first else None)
        axes.errorbar(place, step["median"], color="black", capsize=3, linewidth=0.8,
                      yerr=[[step["median"] - step["least"]], [step["most"] - step["median"]]],
                      label="all rounds" if first else None)
        axes.annotate(f"{step['median']:.1f} ms,\n{100 * side['exposed_share']['median']:.1f} % waiting",
                      (place, step["most"]), xytext=(0, 4), textcoords="offset points", ha="center",
                      fontsize=9)
    if not data["sides"]:
        raise Refused("no side: at least one expected")
    names = [name_of(side["comm"]).replace(" on ", "\non ") for side in data["sides"]]
    axes.set_xticks(range(len(data["sides"])), names)
    axes.set_xlim(-0.6, len(data["sides"]) - 0.4)
    axes.set_ylim(0, 1.3 * max(side["step_ms"]["most"] for side in data["sides"]))
    axes.set_ylabel(f"ms a step, median of {data['rounds']} rounds")
    device = "GPUs" if what["device"] == "cuda" else "the host device"
    axes.set_title(f"A sharded training, {parameters_word(what['parameters'])} parameters, "
                   f"{what['ranks']} ranks on {device}", fontsize=11)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="upper right", ncols=2)


def draw_beside(data, figure):
    what, axes = data["beside"], figure.subplots()
    for place, call in enumerate(data["calls"]):
        width = 0.8 / len(call["sides"])
        for i, side in enumerate(call["sides"]):
            x, median, p99 = place - 0.4 + (i + 0.5) * width, side["median_us"], side["p99_us"]
            label = side["side"].replace("cecl, urgent", "cecl, urgent communicator")
            axes.bar(x, median, width=0.9 * width, color=colour_of(side["side"]),
                     label=label.replace("nccl", "NCCL") if place == 0 else None)
            axes.errorbar(x, median, yerr=[[0], [p99 - median]], color="black", capsize=3, linewidth=0.8)
            axes.annotate(f"{median:.0f}", (x, p99), xytext=(0, 3), textcoords="offset points", ha="center",
                          fontsize=8)
    axes.set_yscale("log")
    axes.set_ylim(5, 10000)
    axes.set_ylabel("us: median, and line to the 99th percentile")
    axes.set_xticks(range(len(data["calls"])), [bytes_word(call["bytes"]) + " a rank" for call in data["calls"]])
    axes.set_title(f"Small all-gathers beside all-gathers of {bytes_word(what['bulk_bytes'])} a rank, "
                   f"{what['ranks']} GPUs", fontsize=11)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="upper right", ncols=2)


def draw_fsdp2(data, figure):
    what, axes = data["fsdp2"], figure.subplots()
    figure.set_size_inches(5, 3.2)
    sides = list(data["step_ms"].items())
    for place, (side, ms) in enumerate(sides):
        axes.bar(place, ms["median"], width=0.55, color=colour_of(side),
                 yerr=[[ms["median"] - ms["least"]], [ms["most"] - ms["median"]]], capsize=3)
        axes.annotate(f"{ms['median']:.1f} ms", (place, ms["most"]), xytext=(0, 4), textcoords="offset points",
                      ha="center", fontsize=9)
    if "line" in data:
        line = data["line"]
        axes.axhline(line["ms"], color="black", linestyle="--", linewidth=0.9, label=f"{line['label']}: {line['ms']:.1f} ms")
        axes.legend(fontsize=8, loc="upper right")
    axes.set_xticks(range(len(sides)), [{"cecl": "cecl in NCCL's place"}.get(side, name_of(side)) for side, _ in sides])
    axes.set_ylim(0, 1.2 * max(ms["most"] for _, ms in sides))
    axes.set_ylabel("ms a step, median; all rounds")
    axes.set_title(f"FSDP2: {what['blocks']} blocks of width {what['width']}, batch {what['batch']}, "
                   f"{what['ranks']} GPUs", fontsize=11)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


KINDS = {"fsdp2": draw_fsdp2, "rows": draw_bandwidth, "sizes": draw_overlap, "sides": draw_training, "calls": draw_beside}


def load_pyplot():
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot
    except ImportError:
        return None
    # Text stays text in the file, and equal input gives an equal file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cecl"})
    return pyplot


def draw(data, output, pyplot):
    figure = pyplot.figure(figsize=(7.5, 4.2), layout="constrained", facecolor="white")
    next(draw for key, draw in KINDS.items() if key in data)(data, figure)
    metadata = {"Date": None} if output.endswith(".svg") else None
    figure.savefig(output, dpi=150, metadata=metadata)
    pyplot.close(figure)


def take_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", help="what was measured, as JSON")
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
