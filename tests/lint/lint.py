#!/usr/bin/env python3
"""Rules of the tree, each a test: lint.py RULE ROOT. Prints every breach; exits 1 on one.

includes  a file includes only what its layer may depend on (the edges of kv_targets.cmake)
sizes     lines of at most 100 columns, files of at most 500 lines
banned    names that have a replacement, leftovers, paths of one machine
twins     every header that another folder includes is included by some test, too
files     every folder of the first two levels has a README; no stray top-level entry
"""
import pathlib
import re
import sys

SOURCE_ENDINGS = {".h", ".cc", ".c", ".cu", ".cuh"}
TEXT_ENDINGS = SOURCE_ENDINGS | {".py", ".cmake", ".txt", ".md", ".fbs", ".json", ""}
SKIPPED = {"build", ".git", ".cache"}
TOP_LEVEL = {
    "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "allocator", "cachesvc",
    "kernels", "plugins", "schemas", "tests", "tiering", "tools",
}

# Longest prefix wins: folder -> layer.
LAYERS = {
    "allocator/base": "base", "allocator": "allocator", "tiering/stores": "stores",
    "tiering": "tiering", "kernels/api": "kernels_api", "kernels": "kernels", "schemas": "schemas",
    "cachesvc/core": "core", "cachesvc/wire": "wire", "cachesvc/shell": "shell",
    "cachesvc/program": "program",
    "plugins": "plugins", "tools/cachectl": "cachectl", "tools/world": "world",
    "tools/cachesim": "cachesim", "tools/cachebench": "cachebench", "tests": "tests",
}
PURE = ("allocator/", "tiering/policies/", "cachesvc/core/")

# (regular expression, where it is banned, what to use instead)
_PURE = " ".join(PURE)
_LIBRARIES = "allocator/ tiering/ cachesvc/core/ cachesvc/wire/ kernels/"
BANNED = [
    (r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", "", "do it, or put it into an issue"),
    (r"\busing namespace std\b", "", "name what you use"),
    (r"\bsleep_for\b|\busleep\(|[^_a-z]sleep\(", "tests/",
     "wait for a condition with a deadline"),
    (r"\bstd::(cout|cerr)\b", _LIBRARIES, "return a Result; only programs print"),
    (r"\bsystem_clock\b", "allocator/ tiering/ cachesvc/ kernels/",
     "the steady clock, or `now`"),
    (r"\b(rand|srand|random_device|mt19937)\b", "", "kv::Prng with a seed"),
    (r"\bstd::(mutex|thread|atomic|chrono::steady_clock)\b", _PURE, "pure code has none"),
    (r"\b(getenv|fopen|printf)\b", _PURE, "pure code has no IO and no environment"),
    (r"#include <(iostream|fstream|mutex|thread|atomic|random|filesystem)>", _PURE,
     "pure code has no IO, threads or chance"),
    (r"#include <unordered_(map|set)>", _PURE, "FlatMap: no unordered iteration"),
    (r"\bfriend class \w*Test\b", "", "test through the public interface"),
    (r"(^|[^A-Za-z0-9_.])/(wo" r"rk|ro" r"ot|ho" r"me)/", "", "no path of one machine"),
]


def sources(root, endings):
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if relative.parts[0] in SKIPPED or "models" in relative.parts or not path.is_file():
            continue
        if path.suffix in endings:
            yield relative, path


def layer_of(path):
    for prefix in sorted(LAYERS, key=len, reverse=True):
        if path.startswith(prefix + "/"):
            return LAYERS[prefix]
    return None


def edges(root):
    text = (root / "tools/dev/cmake/kv_targets.cmake").read_text()
    table = {}
    for name, values in re.findall(r"set\(KV_EDGES_(\w+)([^)]*)\)", text):
        names = [v for v in values.replace('"', " ").split()]
        for value in list(names):
            reference = re.fullmatch(r"\$\{KV_EDGES_(\w+)\}", value)
            if reference:
                names.remove(value)
                names += table[reference.group(1)]
        table[name] = names
    return table


def check_includes(root):
    table = edges(root)
    for relative, path in sources(root, SOURCE_ENDINGS):
        layer = layer_of(str(relative))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            other = layer_of(match.group(1))
            if layer is None or other is None:
                yield f"{relative}:{number}: {match.group(1)} is in no layer: name it from the root"
            elif other != layer and other not in table[layer]:
                yield f"{relative}:{number}: {layer} must not include {match.group(1)} ({other})"


def check_sizes(root):
    for relative, path in sources(root, SOURCE_ENDINGS | {".py", ".cmake", ".fbs"}):
        lines = path.read_text().splitlines()
        if len(lines) > 500:
            yield f"{relative}: {len(lines)} lines; at most 500: what is the second noun in it?"
        for number, line in enumerate(lines, 1):
            if len(line) > 100:
                yield f"{relative}:{number}: {len(line)} columns; at most 100"


def check_banned(root):
    for relative, path in sources(root, TEXT_ENDINGS):
        if relative.parts[:2] == ("tests", "lint"):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for pattern, where, instead in BANNED:
            if where and not str(relative).startswith(tuple(where.split())):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(pattern, line):
                    yield f"{relative}:{number}: {line.strip()[:60]!r}: {instead}"


def check_twins(root):
    included = set()
    for relative, path in sources(root, SOURCE_ENDINGS):
        if relative.parts[0] == "tests":
            included.update(re.findall(r'#\s*include\s+"([^"]+)"', path.read_text()))
    # A header counts when a test includes it, or a header that a test includes does.
    reached, waiting = set(), sorted(included)
    while waiting:
        name = waiting.pop()
        if name in reached or not (root / name).is_file():
            continue
        reached.add(name)
        waiting += re.findall(r'#\s*include\s+"([^"]+)"', (root / name).read_text())
    # Public: some other folder of the product includes it.
    public = set()
    for relative, path in sources(root, SOURCE_ENDINGS):
        for name in re.findall(r'#\s*include\s+"([^"]+)"', path.read_text()):
            if relative.parts[0] != "tests" and not name.startswith(f"{relative.parent}/"):
                public.add(name)
    for name in sorted(public):
        if (root / name).is_file() and name not in reached:
            yield f"{name}: no test includes it"


def check_files(root):
    for path in sorted(root.iterdir()):
        if not path.name.startswith(".") and path.name not in TOP_LEVEL | SKIPPED:
            yield f"{path.name}: the top level is fixed"
    folders = [root / name for name in sorted(TOP_LEVEL) if (root / name).is_dir()]
    for folder in folders:
        if not (folder / "README.md").is_file():
            yield f"{folder.relative_to(root)}: has no README.md"
        for inner in sorted(p for p in folder.iterdir() if p.is_dir()):
            if folder.name == "tests" or inner.name in SKIPPED | {"base", "dev", "models"}:
                continue
            if not (inner / "README.md").is_file():
                yield f"{inner.relative_to(root)}: has no README.md"


RULES = {"includes": check_includes, "sizes": check_sizes, "banned": check_banned,
         "twins": check_twins, "files": check_files}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in RULES:
        sys.exit(f"usage: lint.py {'|'.join(RULES)} ROOT")
    breaches = list(RULES[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve()))
    print("\n".join(breaches) if breaches else f"{sys.argv[1]}: clean")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
