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
        echo "Please run this as root, then again: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "Installing ${missing[*]} ..."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# If one of several package lists cannot be fetched, the others may still suffice.
"${as_root[@]}" apt-get update >"$log" 2>&1 || true
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    exit 1
fi
