#!/usr/bin/env bash
# Installs the Debian packages that are missing among those named: setup.sh PACKAGE ...
# Prints nothing when all are installed. On other systems it only names the packages: CMake then finds
# what they hold, or says what is missing.
set -euo pipefail

missing=()
for package in "$@"; do
    # `dpkg -s` would not do: it succeeds for a package that was removed and left its configuration.
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Needed, by Debian's names (this is no Debian; nothing was installed): ${missing[*]}" >&2
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Needed, and only root may install it; as root: apt-get update &&" \
            "apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing ${missing[*]} ..."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Tells what to do after apt-get failed. apt-get update may end with 0 though it fetched nothing.
explain() {
    tail -n 20 "$log" >&2
    echo >&2
    echo "apt-get could not install ${missing[*]}." >&2
    if [ "$updated" -ne 0 ] ||
        grep -Eq '^Err:|^[EW]: (Failed to fetch|Some index files|The repository)' "$log"; then
        echo "It could not fetch its package lists, or a package: is this machine offline, or does" \
            "a server in /etc/apt not answer? Run this again once \`apt-get update\` ends without" \
            "a warning, or install the packages in another way." >&2
    elif grep -q '^E: Unable to locate package' "$log"; then
        echo "Its package lists are fetched and do not name them: they are Debian 12's names." \
            "Add Debian's section \`main\` to /etc/apt/sources.list, or install what your system" \
            "has in their place." >&2
    fi
}

# One unreachable list among several must not stop what the others can give.
updated=0
"${as_root[@]}" apt-get update >"$log" 2>&1 || updated=$?
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    explain
    exit 1
fi
