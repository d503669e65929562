#!/usr/bin/env bash
# Starts ranks as the scripts do: as the current user and, if that is root, as another user.
set -uo pipefail
scripts=$(cd -- "$(dirname -- "$0")/../../scripts" && pwd)
home=$(mktemp -d /tmp/cecl_XXXXXX) # not in TMPDIR, which the other user may not enter
trap 'rm -rf "$home"' EXIT
# The other user may not enter the folders above this script, for example root's home.
cp "$scripts/common.sh" "$home"
failed=0

# starts WHO COMMAND...: COMMAND runs the shell that starts the ranks as the user WHO.
starts() {
    local who=$1 said
    shift
    # shellcheck disable=SC2016 # expanded by the shell that starts the ranks
    said=$(cd "$home" && "$@" env -u OMPI_ALLOW_RUN_AS_ROOT -u OMPI_ALLOW_RUN_AS_ROOT_CONFIRM bash -c '
        . ./common.sh
        "${mpi_run[@]}" -n 2 echo a rank' 2>&1) &&
        [ "$(grep -cx "a rank" <<<"$said")" -eq 2 ] && return
    printf 'as %s two ranks did not start: %s\n' "$who" "$said"
    failed=1
}

starts "$(id -un)" env
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chown -R 65534:65534 "$home"
    starts "user 65534" setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$home" TMPDIR="$home"
fi
exit $failed
