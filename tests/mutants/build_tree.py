"""A finished build, and variants of its programs in which one file is changed.

Only what includes the changed file is compiled anew, with the commands of the build but without
optimisation; the new object stands in the old one's place, or before the library that holds it."""
import contextlib
import functools
import json
import os
import pathlib
import shlex
import shutil
import subprocess


class BuildError(Exception):
    """A variant that cannot be compiled or linked."""


class Variant:
    def __init__(self, test, programs):
        self.test = test
        self.programs = programs  # folder of the programs that the test runs; None: the build's


class BuildTree:
    def __init__(self, build):
        self.build = build
        commands = json.loads((build / "compile_commands.json").read_text())
        self.compiles = {}  # object -> arguments
        for entry in commands:
            arguments = shlex.split(entry["command"])
            self.compiles[arguments[arguments.index("-o") + 1]] = arguments
        self.sources = {}  # source -> objects
        for name, arguments in self.compiles.items():
            self.sources.setdefault(arguments[-1], []).append(name)
        settings = (build / "CMakeCache.txt").read_text().splitlines()
        home = next(x for x in settings if x.startswith("CMAKE_HOME_DIRECTORY:"))
        self.root = pathlib.Path(home.split("=", 1)[1])
        self.ccache = shutil.which("ccache")

    def binary(self, name):
        return self.build / "bin" / name

    def _ninja(self, *arguments):
        done = subprocess.run(["ninja", "-C", str(self.build), *arguments], capture_output=True,
                              text=True, check=True)
        return [x for x in done.stdout.splitlines() if not x.startswith("ninja: Entering")]

    @functools.lru_cache(maxsize=None)
    def _link(self, target):
        """Arguments of the command that links a program."""
        commands = self._ninja("-t", "commands", "-s", target)[-1].split(" && ")
        return tuple(next(a for a in map(shlex.split, commands) if "-o" in a))

    @functools.lru_cache(maxsize=None)
    def _members(self, archive):
        inputs = self._ninja("-t", "query", archive)
        return {line.strip() for line in inputs if line.strip().endswith(".o")}

    @functools.lru_cache(maxsize=None)
    def _includers(self, header):
        """Objects that the header is a part of."""
        found, current = set(), None
        for line in self._ninja("-t", "deps"):
            if line and not line.startswith(" "):
                current = line.split(":", 1)[0]
            elif line.strip() in (header, os.path.relpath(header, self.build)):
                found.add(current)
        return found

    def _objects(self, mutant, link):
        """Those of the link that the changed file is a part of."""
        parts = {a for a in link if a.endswith(".o")}
        for archive in (a for a in link if a.endswith(".a")):
            parts |= self._members(archive)
        source = str(self.root / mutant.file)
        wanted = self.sources.get(source) or self._includers(source)
        found = sorted(parts.intersection(wanted))
        if not found:
            raise BuildError(f"{mutant.file} is no part of {mutant.program or mutant.test}")
        return found

    def _run(self, arguments, what):
        environment = os.environ | {"CCACHE_BASEDIR": str(self.root), "CCACHE_NOHASHDIR": "1"}
        done = subprocess.run(arguments, cwd=self.build, env=environment, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"cannot be {what}\n{done.stderr[-2000:]}")

    def _compile(self, name, changed, source, output):
        left_out = ("-O2", "-Werror", "-D_FORTIFY_SOURCE=2")  # the last one wants the first
        arguments = [a for a in self.compiles[name] if a not in left_out]
        arguments[arguments.index("-o") + 1] = str(output)
        if arguments[-1] == str(self.root / source):
            arguments[-1] = str(changed / source)
        arguments[1:1] = [f"-I{changed}", "-O0", "-w"]
        self._run(([self.ccache] if self.ccache else []) + arguments, "compiled")

    @contextlib.contextmanager
    def variant(self, mutant, changed):
        work = self.build / "tests" / "mutants" / (mutant.name + ("" if changed else ".twin"))
        shutil.rmtree(work, ignore_errors=True)
        source = work / "src" / mutant.file
        source.parent.mkdir(parents=True)
        text = (self.root / mutant.file).read_text()
        source.write_text(text.replace(mutant.old, mutant.new) if changed else text)
        try:
            target = mutant.program or mutant.test
            link = list(self._link(f"bin/{target}"))
            for number, name in enumerate(self._objects(mutant, link)):
                output = work / f"{number}.o"
                self._compile(name, work / "src", mutant.file, output)
                if name in link:
                    link[link.index(name)] = str(output)
                else:  # it defines all that the library's own object does
                    link.insert(next(i for i, a in enumerate(link) if a.endswith(".a")),
                                str(output))
            programs = work / "bin"
            programs.mkdir()
            link[link.index("-o") + 1] = str(programs / target)
            self._run(link, "linked")
            if not mutant.program:
                yield Variant(programs / target, None)
                return
            for other in (self.build / "bin").iterdir():
                if other.name != target:
                    (programs / other.name).symlink_to(other)
            yield Variant(self.binary(mutant.test), programs)
        finally:
            shutil.rmtree(work, ignore_errors=True)
