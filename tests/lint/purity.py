#!/usr/bin/env python3
"""Purity by symbols: purity.py ARCHIVE...

An allow list of what the pure Release archives may need from outside, and of the data they may
hold. Anything else (IO, clocks, threads, locks, globals) is a breach."""
import re
import subprocess
import sys

# Undefined symbols that pure code may need: the language's runtime and memory, nothing that acts.
ALLOWED = re.compile(r"""^(
    mem(cpy|move|set|cmp|chr)(_chk)? | __mem(cpy|move|set)_chk | strlen | bcmp
  | __assert_fail | abort | __stack_chk_fail
  | operator\ (new|delete)(\[\])?\(.*\)
  | __cxa_(begin_catch|end_catch|rethrow|throw_bad_array_new_length|pure_virtual|allocate_exception
          |throw|free_exception|guard_\w+)
  | _Unwind_Resume | __gxx_personality_v0 | __dso_handle | _GLOBAL_OFFSET_TABLE_
  | vtable\ for\ __cxxabiv1::\w+ | typeinfo\ for\ std::\w+ | vtable\ for\ std::\w+
  | std::__throw_\w+\(.*\) | std::__glibcxx_assert_fail\(.*\)
  | std::bad_variant_access::.* | std::exception::.* | std::bad_alloc::.*
  | std::__detail::_Prime_rehash_policy::.* | std::_Rb_tree_\w+\(.*\)
  | std::__cxx11::basic_string<.*
  | SHA256_Transform | __popcountdi2
)$""", re.VERBOSE)
# Read-only data and vtables are fine; writable data (B, b, D, d, C) is not, but for this one word.
ALLOWED_DATA = re.compile(r"^DW\.ref\.__gxx_personality_v0$")


def symbols(archive):
    """(kind, name, section) of every symbol."""
    text = subprocess.run(["nm", "--demangle", "--format=sysv", archive], check=True,
                          capture_output=True, text=True).stdout
    for line in text.splitlines():
        columns = line.rsplit("|", 6)  # name, value, class, type, size, line, section
        if len(columns) == 7 and len(columns[2].strip()) == 1:
            yield columns[2].strip(), columns[0].strip(), columns[6].strip()


def main():
    archives = sys.argv[1:]
    if not archives:
        sys.exit("purity.py: no archive named")
    found = {archive: list(symbols(archive)) for archive in archives}
    defined = {name for listed in found.values() for kind, name, _ in listed if kind not in "Uw"}
    breaches = []
    for archive, listed in found.items():
        for kind, name, section in listed:
            if kind == "U" and name not in defined and not ALLOWED.match(name):
                breaches.append(f"{archive}: needs {name}")
            # .data.rel.ro is read-only once the loader has put the addresses in.
            if kind in "BbDdC" and not section.startswith(".data.rel.ro") and \
                    not ALLOWED_DATA.match(name):
                breaches.append(f"{archive}: writable data {name}")
    print("\n".join(sorted(set(breaches))) or f"{len(archives)} archives: pure")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
