#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the virtual-time kernel and its modules into a cache, once for each combination of source, configuration
# and patches, and prints the folder that holds `linux` and `modules/`.
#
#   kernel/build.sh             the default series (6.12)
#   QBED_KERNEL=7.2 kernel/build.sh      another series that has a folder under kernel/patches/
#
# The sources are Debian's own package linux-source-SERIES: installed, or else (a newer series on an older Debian)
# fetched with apt's tools and keys from Debian's testing, without touching this machine's own sources.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
series=${QBED_KERNEL:-6.12}
cache=${QBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qbed}
jobs=${QBED_JOBS:-$(nproc)}

say() { printf 'kernel: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

[ -d "$here/patches/$series" ] || die "no patches for kernel $series; there are: $(cd "$here/patches" && echo *)"

# Sets source_tar and version. The package's version names its content; reading it is faster than hashing 150 MB.
find_source() {
    local package=linux-source-$series store=$cache/source
    source_tar=/usr/src/$package.tar.xz
    if [ -f "$source_tar" ]; then
        version=$(dpkg-query -W -f '${Version}' "$package")
        return
    fi
    source_tar=$store/$package.tar.xz
    [ -f "$source_tar" ] || fetch_source "$package" "$store"
    version=$(cat "$source_tar.version")
}

fetch_source() {
    local package=$1 store=$2 work=$2/new
    say "fetching $package from Debian testing"
    rm -rf "$work"
    "$root/tools/apt-private" "$work" testing apt-get download "$package" ||
        die "$package is neither installed nor in Debian testing"
    mkdir "$work/root"
    dpkg-deb -f "$work"/"$package"_*.deb Version >"$store/$package.tar.xz.version"
    dpkg-deb --fsys-tarfile "$work"/"$package"_*.deb | tar -x -C "$work/root" "./usr/src/$package.tar.xz"
    mv "$work/root/usr/src/$package.tar.xz" "$store/"
    rm -rf "$work"
}

find_source
compiler=$(${CC:-gcc} -dumpfullversion)
kernel_hash=$({ echo "$version $compiler"; cat "$here/config.fragment" "$here/uml"/*.h "$here/patches/$series"/*.patch; } | sha256sum | cut -c1-16)
kernel=$cache/kernel/$series-$kernel_hash
mkdir -p "$cache/kernel"

# One build at a time for each user; a second one waits and then finds the result.
exec 9>"$cache/kernel/.lock"
flock 9

build_kernel() {
    # Built where it is going to live, since the makefiles hold absolute paths; `linux` appears last and says that it is whole.
    local work=$kernel log=$kernel.log
    rm -rf "$work"
    mkdir -p "$work/source" "$work/build"
    say "building Linux $version with $jobs jobs (some minutes; log: $log)"
    {
        tar -xf "$source_tar" -C "$work/source" --strip-components=1
        for patch in "$here/patches/$series"/*.patch; do
            patch --batch --fuzz=0 -p1 -d "$work/source" <"$patch"
        done
        cp "$here/uml"/*.h "$work/source/arch/um/include/shared/"
        cp "$here/config.fragment" "$work/build/fragment"
        make -C "$work/source" ARCH=um O="$work/build" KCONFIG_ALLCONFIG="$work/build/fragment" allnoconfig
        make -C "$work/build" ARCH=um KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' \
            KBUILD_BUILD_USER=qbed KBUILD_BUILD_HOST=qbed -j"$jobs" linux modules
    } >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "the kernel did not build; the whole log is $log"; }
    local missing
    missing=$(grep -E '^CONFIG_[A-Z0-9_]+=y' "$work/build/fragment" | while read -r option; do
        grep -qx "$option" "$work/build/.config" || grep -qsx "${option%=y}" "$here/patches/$series/absent" || echo "${option%=y}"
    done) || true
    [ -z "$missing" ] || die "the configuration lost: $(echo $missing)"
    strip --strip-debug -o "$work/linux.new" "$work/build/linux"
    # What modules need stays (headers, Module.symvers, scripts); the kernel's own objects and sources go.
    find "$work/build" \( -name '*.o' -o -name '*.a' \) ! -path '*/scripts/*' -delete
    rm -f "$work/build"/{linux,vmlinux,vmlinux.unstripped,.tmp_vmlinux*}
    find "$work/source" -name '*.c' ! -path '*/scripts/*' -delete
    rm -rf "$work/source"/{Documentation,drivers,sound,fs,samples,tools/testing}
    mv "$work/linux.new" "$work/linux"
}
[ -x "$kernel/linux" ] || build_kernel

# --- modules: ours, and every scheme's qdisc ---
module_sources=("$here"/modules/* "$here"/include/uapi/qbed/*.h "$here"/include/qbed/*.h "$root"/schemes/*/sch_*.[ch] "$root"/schemes/*/*_algorithm.h)
existing=()
for file in "${module_sources[@]}"; do [ ! -f "$file" ] || existing+=("$file"); done
modules_hash=$({ echo "$kernel_hash"; for file in "${existing[@]}"; do basename "$file"; cat "$file"; done; } | sha256sum | cut -c1-16)
modules=$kernel/modules-$modules_hash

build_modules() {
    local work=$kernel/modules.new log=$kernel/modules.log
    rm -rf "$work"
    mkdir -p "$work/source/qbed" "$work/modules"
    cp "${existing[@]}" "$work/source/"
    cp "$here"/include/uapi/qbed/*.h "$work/source/qbed/"
    make -C "$kernel/build" ARCH=um M="$work/source" -j"$jobs" modules >"$log" 2>&1 </dev/null ||
        { tail -n 30 "$log" >&2; die "the modules did not build; the whole log is $log"; }
    for module in "$work"/source/*.ko; do strip --strip-debug -o "$work/modules/$(basename "$module")" "$module"; done
    mv "$work/modules" "$modules"
    rm -rf "$work"
}
[ -d "$modules" ] || build_modules

printf '%s %s %s %s\n' "$kernel/linux" "$modules" "$version" "$modules_hash"
