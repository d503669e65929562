#!/usr/bin/env python3
"""Lists circles of more than three files of src that call each other, and fails if there is one.

    check_circles.py BUILD    a build of cecl; with CUDA, so that all files are in it

In a circle, each file reaches every other one by calls or by data that it uses; nm shows this in the
objects. Files that call each other cannot be understood, or tested, one by one.
"""
import collections
import os
import subprocess
import sys

MOST = 3


def symbols(obj):
    """The symbols that an object defines for others, and those that it uses of others."""
    defined, used = set(), set()
    out = subprocess.run(["nm", "--format=posix", obj], capture_output=True, text=True, check=True)
    for line in out.stdout.splitlines():
        name, kind = line.split()[:2]
        if kind in "Uvw":
            used.add(name)
        elif kind.isupper():
            defined.add(name)
    return defined, used


def objects(build):
    """The libraries' objects, by the names of their sources. Objects of sources that are gone do not count."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src")
    found = {}
    for library in ("cecl_core", "cecl_nccl", "cecl_nccl_objects"):
        top = os.path.join(build, "CMakeFiles", library + ".dir", "src")
        for folder, _, files in os.walk(top):
            for file in files:
                source = os.path.relpath(os.path.join(folder, file), top)[:-len(".o")]
                if file.endswith(".o") and os.path.exists(os.path.join(root, source)):
                    found.setdefault(source, os.path.join(folder, file))
    return found


def circles(edges):
    """The strongly connected components of more than one file (Tarjan, without recursion)."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            at, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on:
                    low[at] = min(low[at], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    circle = set()
                    while at not in circle:
                        circle.add(stack[-1])
                        on.discard(stack.pop())
                    if len(circle) > 1:
                        found.append(circle)
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sources = objects(sys.argv[1])
    if not sources:
        sys.exit("check_circles.py: %s holds no objects of cecl: build there first" % sys.argv[1])
    homes, uses = {}, {}
    for source, obj in sources.items():
        defined, uses[source] = symbols(obj)
        for name in defined:
            homes[name] = source
    edges = collections.defaultdict(dict)
    for source, names in uses.items():
        edges[source] = {}
        for name in names:
            home = homes.get(name)
            if home and home != source:
                edges[source].setdefault(home, name)
    wrong = 0
    for circle in sorted(circles(edges), key=len, reverse=True):
        if len(circle) <= MOST:
            continue
        wrong += 1
        print("%d files call each other in a circle:" % len(circle))
        for source in sorted(circle):
            inside = sorted((other, name) for other, name in edges[source].items()
                            if other in circle)
            print("  %s -> %s" % (source, ", ".join("%s (%s)" % pair for pair in inside)))
    print("%d files, %d circles of more than %d" % (len(sources), wrong, MOST))
    sys.exit(1 if wrong else 0)


main()
