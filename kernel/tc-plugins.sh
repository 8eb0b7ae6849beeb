#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the tc plugins of the schemes (generated from schemes/*/scheme.yml) and the ip plugin of the link device into a cache. Prints
# the folder:
#
#   TC_LIB_DIR=$(kernel/tc-plugins.sh) tc -s qdisc
#   IP_LIB_DIR=$(kernel/tc-plugins.sh) ip link add qa type qlink rate 10gbit delay 5us peer qb
#   kernel/tc-plugins.sh REPOSITORY        also those of the schemes of a user's repository
#
# Plugins must match the version of tc and ip that loads them, so the headers are from the source of the installed iproute2,
# fetched with apt's tools and keys, without changing this machine's apt sources.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
shipped=$root # the folder with schemes: in a wheel, the one above its sources
[ -d "$root/schemes" ] || shipped=$(dirname "$root")
cache=${QBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qbed}

say() { printf 'tc-plugins: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

for program in dpkg-query dpkg-source "${CC:-gcc}" tc; do
    command -v "$program" >/dev/null || die "there is no $program: install Debian's packages iproute2 and build-essential"
done
package=$(dpkg-query -W -f '${source:Package}=${source:Version}' iproute2) || die "iproute2 is not installed"
source=$cache/source/${package/=/-}
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

fetch_source() {
    local work=$source.new
    say "fetching the source of $package"
    rm -rf "$work"
    "$root/tools/apt-private" "$work" "$suite $suite-updates $suite-backports" apt-get source "$package" || die "cannot fetch the source of $package"
    mv "$work"/iproute2-*/ "$source.tree"
    rm -rf "$work"
    mv "$source.tree" "$source"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
QBED_REPOSITORY=${1:-} QBED_SCHEMES=$shipped/schemes "${QBED_PYTHON:-$root/.venv/bin/python}" -m qbed.schemes.generate tc "$work" ||
    die "cannot generate the code of the schemes: see above, or run make setup"
plugins=("$work"/q_*.c "$here"/iproute2/link_*.c)
hash=$({ echo "$package $(${CC:-gcc} -dumpfullversion)"; cat "$0" "${plugins[@]}" "$here"/iproute2/*.h "$here"/include/uapi/qbed/*.h; } | sha256sum | cut -c1-16)
out=$cache/tc/$hash

build() {
    local new=$out.new plugin
    [ -d "$source" ] || fetch_source
    rm -rf "$new"
    mkdir -p "$new"
    for plugin in "${plugins[@]}"; do
        ${CC:-gcc} -O2 -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -Werror -fPIC -shared -D_GNU_SOURCE \
            -isystem "$source/include" -isystem "$source/include/uapi" -isystem "$source/tc" -isystem "$source/ip" -I"$here/iproute2" -I"$here/include/uapi/qbed" \
            -o "$new/$(basename "$plugin" .c).so" "$plugin" >"$out.log" 2>&1 || { cat "$out.log" >&2; die "$(basename "$plugin") did not build"; }
    done
    tc -V >"$new/version"
    rm -rf "$out"
    mv "$new" "$out"
}

mkdir -p "$cache/tc" "$cache/source"
. "$root/tools/build-lock"
build_lock "$cache/tc/.lock" "building plugins of tc"
[ -d "$out" ] || build
echo "$out"
