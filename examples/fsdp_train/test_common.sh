# shellcheck shell=bash
# Functions of the training's tests. A test sources this file with its own arguments: EXAMPLE MPIRUN...
set -u
example=$1
shift
mpirun=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny=(--layers 2 --width 32 --heads 2 --sequence 16)

fail() {
    printf '%s\n' "$*"
    exit 1
}

# run RANKS OPTION...: the training must succeed.
run() {
    local ranks=$1 output
    shift
    output=$("${mpirun[@]}" -n "$ranks" "$example" "${tiny[@]}" "$@" 2>&1) ||
        fail "failed: $ranks ranks, $*" "$output"
}

# losses FILE: prints the losses, one a line, with all digits.
losses() {
    grep -E '^    [0-9.]+,?$' "$1" | tr -d ' ,'
}

# near FILE OTHER N MOST PART: the first N losses of FILE and of OTHER must differ by at most MOST. The N-th
# loss must be below PART times the first one, which shows that the losses depend on the gradients, and not
# only on the first parameters.
near() {
    paste <(losses "$1") <(losses "$2") | awk -v name="$2" -v n="$3" -v allowed="$4" -v part="$5" '
        NR <= n { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most) most = d; last = $2 }
        NR == 1 { first = $2 }
        END {
            printf "%s: %d losses, %s -> %s, differ by %.1e at most\n", name, NR, first, last, most
            exit !(NR >= n && most < allowed && last < part * first)
        }' || fail "losses differ, or do not fall"
}

# refuses RANKS CODE WORDS OPTION...: every rank must end with CODE, none may hang, and a message must have
# WORDS.
refuses() {
    local ranks=$1 code=$2 words=$3 output
    shift 3
    output=$(timeout 200 "${mpirun[@]}" -n "$ranks" sh -c '"$@"; echo "ended with $?"' rank \
        "$example" "${tiny[@]}" "$@" 2>&1)
    if [ "$(grep -c "^ended with $code\$" <<<"$output")" -ne "$ranks" ] ||
        ! grep -qF -- "fsdp_train: $words" <<<"$output"; then
        fail "not refused with \"$words\": $*" "$output"
    fi
    # shellcheck disable=SC2034 # read by the scripts that source this file
    told=$(grep -c "fsdp_train: " <<<"$output") # how many ranks printed anything
}
