#!/usr/bin/env bash
# The purity check refuses an archive with a clock, one with a global, and accepts a clean one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
archive() {
  echo "$2" >"$1.cc"
  "${CXX:-g++}" -O2 -c "$1.cc" -o "$1.o"
  ar rc "$1.a" "$1.o"
}
archive clean 'int f(int x) { return x + 1; }'
archive clock '#include <ctime>
long f() { return time(nullptr); }'
archive global 'int counter; int f() { return ++counter; }'
python3 "$here/purity.py" clean.a
if python3 "$here/purity.py" clock.a; then echo "a clock passed"; exit 1; fi
if python3 "$here/purity.py" global.a; then echo "a global passed"; exit 1; fi
