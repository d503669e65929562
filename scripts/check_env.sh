#!/bin/sh
# check_env.sh CECL_INFO: fails if docs/env.md differs from the library's table of settings, or if CMake, a test or
# a script uses a variable CECL_... that src/util/settings.h does not name: the library would warn of it.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
"$1" --markdown | diff -u "$root/docs/env.md" - || {
    echo "docs/env.md differs from src/util/settings.h: cecl_info --markdown > docs/env.md"
    exit 1
}

known=$(sed -n 's/.*\("CECL_[A-Z_]*"\).*/&/p' "$root/src/util/settings.h" | grep -o '"CECL_[A-Z_]*"')
cd "$root"
names=$({
    grep -rhoE --include=CMakeLists.txt --include='*.cmake' \
        '(option|set|find_program|find_path|find_library)\(CECL_[A-Z_]*.*' \
        CMakeLists.txt cmake tests bench examples |
        grep -E 'option\(|find_|CACHE' | grep -oE 'CECL_[A-Z_]*' # such a line has no other name of this form
    grep -rhoE --include='*.c' --include='*.cu' 'getenv\("CECL_[A-Z_]*"' tests bench examples
    grep -rhoE '\$\{CECL_[A-Z_]*' scripts
} | grep -oE 'CECL_[A-Z_]+' | sort -u)
for name in $names; do
    case $name in
    CECL_TEST_*) continue ;;
    esac
    printf '%s\n' "$known" | grep -qxF "\"$name\"" || {
        echo "$name is not in src/util/settings.h (CECL_SETTINGS or CECL_OTHER_NAMES)"
        exit 1
    }
done
