#!/usr/bin/env bash
# Fails when an include between folders of src runs up: a file may include its own folder, and folders
# that stand before it in this list. docs/architecture.md says what each folder is.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
order=(util sm boot device alloc call tune plan flags ce comm)

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

includes=0 wrong=0
for folder in src/*/; do
    folder=$(basename "$folder")
    here=$(rank_of "$folder")
    while IFS=: read -r file other; do
        includes=$((includes + 1))
        if [ "$(rank_of "$other")" -gt "$here" ]; then
            echo "$file includes src/$other, which stands above src/$folder" >&2
            wrong=$((wrong + 1))
        fi
    done < <(grep -rEo '^#include "[a-z]+/' "src/$folder" | sed 's/#include "//; s/\/$//')
done
[ "$wrong" -eq 0 ]
echo "$includes includes between and within folders run down"
