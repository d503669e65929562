#!/usr/bin/env bash
# differ.sh CECL_INFO CECL_PERF MPIRUN...: gives two ranks different values of each setting. The ranks must be refused
# if cecl_info says that all ranks need equal values, and must run if it says that each rank may have its own. MPIRUN
# starts both ranks with one command: mpirun of Open MPI 5.0.7 ends by a signal if it gets two commands.
info=$1 perf=$2
shift 2
mpi=("$@")
run=("$perf" -b 1K -e 1K -n 1 -w 0 --rounds 1 --in-place)
failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf 'cecl-tuning 1\nreduction.reading_sms * any 7\n' >"$folder/seven"
printf 'cecl-tuning 1\nreduction.reading_sms * any 8\n' >"$folder/eight"

# Two good values of each setting.
values() {
    case $1 in
    CECL_CHECK | CECL_SHARE_GPU | CECL_URGENT) echo 0 1 ;;
    CECL_CUDA_DEVICE) echo current rank ;;
    CECL_DEBUG) echo none warn ;;
    CECL_DEVICE) echo host auto ;;
    CECL_DIRECTION) echo push PULL ;;
    CECL_FLAGS) echo auto Host ;;
    CECL_HOST_ID) echo same same ;; # ranks of different hosts are refused
    CECL_MAX_SMS) echo 4 8 ;;
    CECL_NCCL) echo off all ;;
    CECL_NCCL_PATH) echo libnccl.so.2 other.so ;;
    CECL_NCCL_STATS | CECL_NVTX | CECL_REGISTER_ON_USE) echo 0 1 ;;
    CECL_NODE_SIZE) echo 1 2 ;;
    CECL_SM_POLICY) echo never allow ;;
    CECL_SOCKET_IFNAME) echo lo none ;;
    CECL_TUNING) echo "$folder/seven" "$folder/eight" ;;
    *_BYTES) echo 8M 16M ;;
    *_MS) echo 20000 21000 ;;
    *) echo "differ.sh: no values for $1" >&2 ;;
    esac
}

# All rows are read before the loop, because mpirun would take them from its standard input.
mapfile -t rows < <("$info" --markdown | grep '^| `')
[ "${#rows[@]}" -gt 0 ] || { echo "no setting was read from $info"; failed=1; }
for row in "${rows[@]}"; do
    IFS='|' read -r _ name _ _ ranks _ <<<"$row"
    name=${name//[\` ]/} ranks=${ranks// /}
    read -r a b <<<"$(values "$name")"
    # shellcheck disable=SC2016 # each rank expands it
    output=$("${mpi[@]}" sh -c 'value=$2
        [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || value=$3
        setting=$1=$value
        shift 3
        exec env "$setting" "$@"' sh "$name" "$a" "$b" "${run[@]}" 2>&1)
    end=$?
    if [ "$ranks" = own ]; then
        [ "$end" -eq 0 ] && continue
    else
        [ "$end" -eq 3 ] && grep -q "ranks differ in .*$name" <<<"$output" && continue
    fi
    printf '%s is %s; with %s and %s:\n%s\n' "$name" "$ranks" "$a" "$b" "$output"
    failed=1
done
exit $failed
