#!/usr/bin/env bash
# Fails if an include between folders of src goes up: a file may include headers of its own folder, and of the folders
# before that one in the list below. src/nccl, the library in NCCL's place, includes only itself and src/util, and no
# other folder includes src/nccl. docs/architecture.md describes the folders. Fails also if a benchmark that is built without
# MPI includes mpi.h: machines that have MPI would not notice.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
order=(util sm boot device alloc plan net flags ce comm launch api nccl)

rank_of() {
    local i
    for i in "${!order[@]}"; do
        if [ "${order[i]}" = "$1" ]; then
            echo "$i"
            return
        fi
    done
    echo "check_includes.sh: folder src/$1 has no place in the order of folders" >&2
    exit 1
}

# may_include FOLDER OTHER: whether files of FOLDER may include files of OTHER
may_include() {
    case $1 in
    nccl) [ "$2" = nccl ] || [ "$2" = util ] ;;
    *) [ "$(rank_of "$2")" -le "$(rank_of "$1")" ] ;;
    esac
}

includes=0 wrong=0
for folder in src/*/; do
    folder=$(basename "$folder")
    rank_of "$folder" >/dev/null
    while IFS=: read -r file other; do
        includes=$((includes + 1))
        if ! may_include "$folder" "$other"; then
            echo "$file includes src/$other, which src/$folder may not" >&2
            wrong=$((wrong + 1))
        fi
    done < <(grep -rEo '^#include "[a-z]+/' "src/$folder" | sed 's/#include "//; s/\/$//')
done
for file in bench/*.[ch]; do
    if [ "$file" != bench/team_mpi.c ] && grep -q '^#include <\(mpi\|cecl/cecl_mpi\)\.h>' "$file"; then
        echo "$file includes MPI's header, but is also built without MPI" >&2
        wrong=$((wrong + 1))
    fi
done
[ "$wrong" -eq 0 ]
echo "$includes includes between and within folders run down"
