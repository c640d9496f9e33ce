#!/usr/bin/env python3
"""What ptxas and nvcc made of the CUDA kernels: cuda_gate.py FOLDER | --self-test.

FOLDER holds NAME.cu.o.ptxas (the report) and NAME.cu.o (with its PTX as text). Holds when every
shipped kernel is there, none spills or keeps a stack, none takes more registers than its ceiling,
and the kernels that move keys and values do so 16 bytes at a time. Exit 77: there is no nvcc.
"""
import pathlib
import re
import sys

# Registers: 65,536 a multiprocessor, 128 threads a block, so 168 leave room for three blocks.
ATTEND_CEILINGS = {1: 104, 2: 136, 4: 168}  # by queries in a tile
WIDE_CEILINGS = {1: 112, 2: 160, 4: 208}    # head dimension 256
OTHER_CEILINGS = {"append_rows": 40, "copy_region": 48, "sum_blocks": 72, "clear_sums": 16,
                  "join_splits": 48, "merge_rows": 40}
# (16-byte loads, 16-byte stores) at least.
ATTEND_MOVES = (16, 0)
OTHER_MOVES = {"append_rows": (1, 1), "copy_region": (4, 4), "sum_blocks": (4, 0)}


def shipped():
    """Every kernel as (key, register ceiling, moves); the key is a piece of its mangled name."""
    for dtype in ("F32", "F16", "BF16"):
        for dim in (64, 128, 256):
            for queries in (1, 2, 4):
                ceilings = WIDE_CEILINGS if dim == 256 else ATTEND_CEILINGS
                key = f"attendINS0_{len(dtype)}{dtype}ELj{dim}ELj{queries}E"
                yield key, ceilings[queries], ATTEND_MOVES
    for name, ceiling in OTHER_CEILINGS.items():
        if name == "copy_region":
            yield "copy_regionILb0E", ceiling, OTHER_MOVES[name]
            yield "copy_regionILb1E", ceiling, OTHER_MOVES[name]
        else:
            yield f"{len(name)}{name}E", ceiling, OTHER_MOVES.get(name, (0, 0))


def reports(text):
    """(kernel, stack bytes, spilled bytes, registers) of each kernel and architecture."""
    pattern = (r"Compiling entry function '(\S+)' for '(\S+)'.*?(\d+) bytes stack frame, "
               r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers")
    for name, arch, stack, stores, loads, registers in re.findall(pattern, text, re.S):
        yield f"{name} ({arch})", int(stack), int(stores) + int(loads), int(registers)


def kernels_in_ptx(text):
    """(kernel, its PTX) of each kernel."""
    for part in re.split(r"\.visible \.entry |\.entry ", text)[1:]:
        yield part.split("(", 1)[0], part


def breaches(report_text, ptx_text):
    found = list(reports(report_text))
    ptx = dict(kernels_in_ptx(ptx_text))
    for key, ceiling, (loads, stores) in shipped():
        mine = [r for r in found if key in r[0]]
        if not mine:
            yield f"{key}: not in the reports"
        for name, stack, spilled, registers in mine:
            if spilled:
                yield f"{name}: {spilled} bytes spilled"
            if stack:
                yield f"{name}: a stack frame of {stack} bytes"
            if registers > ceiling:
                yield f"{name}: {registers} registers; at most {ceiling}"
        bodies = [body for name, body in ptx.items() if key in name]
        if not bodies:
            yield f"{key}: not in the PTX"
        for body in bodies:
            wide_loads = len(re.findall(r"\bld\.global[.\w]*\.v4\.", body))
            wide_stores = len(re.findall(r"\bst\.global[.\w]*\.v4\.", body))
            if wide_loads < loads or wide_stores < stores:
                yield (f"{key}: {wide_loads} loads and {wide_stores} stores of 16 bytes; "
                       f"at least {loads} and {stores}")


def sample(spill=0, registers=32, stack=0, wide=16, without=None):
    report, ptx = "", ""
    for key, _, _ in shipped():
        if key == without:
            continue
        report += (f"ptxas info : Compiling entry function '_ZN{key}v' for 'sm_90'\n"
                   f"    {stack} bytes stack frame, {spill} bytes spill stores, 0 bytes spill "
                   f"loads\nptxas info : Used {registers if 'attend' in key else 8} registers\n")
        ptx += (f".visible .entry _ZN{key}v(\n"
                + "ld.global.cs.v4.u32 {};\nst.global.v4.u32 {};\n" * wide)
    return report, ptx


def self_test():
    """The gate refuses each thing that it is there to refuse."""
    assert not list(breaches(*sample()))
    for fault, words in ((dict(spill=8), "spilled"), (dict(stack=48), "stack frame"),
                         (dict(registers=209), "registers"), (dict(wide=3), "of 16 bytes"),
                         (dict(without="10merge_rowsE"), "not in the reports")):
        assert any(words in breach for breach in breaches(*sample(**fault))), fault
    print("the gate refuses what it should")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    if sys.argv[1] == "":
        print("skipped: there is no nvcc here, so no report to look at")
        sys.exit(77)
    folder = pathlib.Path(sys.argv[1])
    report = "".join(p.read_text() for p in sorted(folder.glob("*.ptxas")))
    ptx = "".join(p.read_bytes().decode("latin-1") for p in sorted(folder.glob("*.cu.o")))
    found = list(breaches(report, ptx))
    table = list(reports(report))
    print("\n".join(found) if found else
          f"{len(table)} kernels: no spill, no stack, at most {max(t[3] for t in table)} registers")
    sys.exit(1 if found else 0)


main()
