"""The planted bugs as they stand in the *.toml files, checked against the tree."""
import dataclasses
import tomllib

ENDS = ("assertion", "check", "timeout")


class EntryError(Exception):
    """What is wrong with the entries, one line each."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    part: str
    name: str
    breaks: str
    file: str
    old: str
    new: str
    test: str
    filter: str
    program: str = ""
    ends: str = "assertion"
    seconds: int = 30
    variables: dict = dataclasses.field(default_factory=dict, hash=False)

    def run_key(self):
        return self.test, self.filter, tuple(sorted(self.variables.items()))


def problems_of(mutant, root):
    path = root / mutant.file
    if not path.is_file():
        return [f"there is no file {mutant.file}"]
    found = []
    count = path.read_text().count(mutant.old) if mutant.old else 0
    if count != 1:
        found.append(f"its old text is {count} times in {mutant.file}, not once")
    if mutant.old == mutant.new:
        found.append("it changes nothing")
    if mutant.ends not in ENDS:
        found.append(f"ends is one of {', '.join(ENDS)}")
    return found


def load(folder, root, part=None):
    mutants, problems = [], []
    for path in sorted(folder.glob("*.toml")):
        if part is not None and path.stem != part:
            continue
        try:
            listed = tomllib.loads(path.read_text())["mutant"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            problems.append(f"{path.name}: {error}")
            continue
        for fields in listed:
            try:
                mutant = Mutant(part=path.stem, **fields)
            except TypeError as error:
                problems.append(f"{path.name}: {fields.get('name', '?')}: {error}")
                continue
            problems += [f"{path.name}: {mutant.name}: {p}" for p in problems_of(mutant, root)]
            mutants.append(mutant)
    names = [m.name for m in mutants]
    problems += [f"{n}: more than one bug of this name" for n in sorted(set(names))
                 if names.count(n) > 1]
    if problems:
        raise EntryError("\n".join(problems))
    return mutants
