#!/usr/bin/env bash
# Starts ranks the way the scripts do, as the user that runs this and, if that is root, as another user.
set -uo pipefail
scripts=$(cd -- "$(dirname -- "$0")/../../scripts" && pwd)
failed=0

# starts WHO COMMAND...: COMMAND before the shell that starts the ranks.
starts() {
    local who=$1 said
    shift
    said=$("$@" env -u OMPI_ALLOW_RUN_AS_ROOT -u OMPI_ALLOW_RUN_AS_ROOT_CONFIRM bash -c '
        root=$(dirname "$1")
        . "$1/common.sh"
        "${mpi_run[@]}" -n 2 echo a rank' start "$scripts" 2>&1) &&
        [ "$(grep -cx "a rank" <<<"$said")" -eq 2 ] && return
    printf 'as %s two ranks did not start: %s\n' "$who" "$said"
    failed=1
}

starts "$(id -un)" env
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    home=$(mktemp -d)
    chown 65534:65534 "$home"
    starts "user 65534" setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$home" TMPDIR="$home"
    rm -rf "$home"
fi
exit $failed
