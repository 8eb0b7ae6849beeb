#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the virtual-time kernel into a cache, once for each combination of source, configuration and patches. Prints the
# folder that holds `linux` and the files for building modules (kernel/modules.sh), and the kernel's version.
#
#   kernel/build.sh             the default series (6.12)
#   QBED_KERNEL=7.2 kernel/build.sh      another series that has a folder under kernel/patches/
#
# The sources are Debian's package linux-source-SERIES: the installed one, or (for a newer series on an older Debian) one
# fetched from Debian testing with apt's tools and keys, without changing this machine's apt sources.
# tools/sources lists the files that the hash covers. An interrupted build leaves only its log.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
series=${QBED_KERNEL:-6.12}
cache=${QBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qbed}
jobs=${QBED_JOBS:-$(($(nproc) + 1))}
# Unwind tables are not used and take 5 % of the compile time.
flags=-fno-asynchronous-unwind-tables

say() { printf 'kernel: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

[ -d "$here/patches/$series" ] || die "no patches for kernel $series; available: $(cd "$here/patches" && echo *)"

# Sets source_tar and version. The package's version identifies its content without hashing 150 MB.
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
files() { "$root/tools/sources" "$1" | sed "s,^,$root/,"; }
kernel_hash=$({ echo "$version $compiler $flags"; files kernel | xargs cat; } | sha256sum | cut -c1-16)
kernel=$cache/kernel/$series-$kernel_hash
mkdir -p "$cache/kernel"
print_result_and_exit() { printf '%s %s\n' "$kernel" "$version"; exit; }

# One build at a time per user; a waiting one then finds the result.
[ ! -x "$kernel/linux" ] || print_result_and_exit
. "$root/tools/build-lock"
build_lock "$cache/kernel/.lock" "building the kernel $series"

# The incomplete build, removed on any exit.
incomplete= ticker=
trap 'trap "" INT TERM HUP; kill $ticker 2>/dev/null || true; rm -rf $incomplete' EXIT
trap 'exit 130' INT TERM HUP

# Two thirds of the sources are drivers, architectures and file systems that User-Mode Linux does not have: only their
# configuration files are unpacked, and empty makefiles keep make out of hundreds of folders.
unpack() {
    local skip=('arch/[a-t]*/*.'{'[chS]*','dts*'} 'drivers/[ad-mo-su-z]*/*.[ch]' 'drivers/net/[ew]*/*.[ch]' 'fs/[befgjloqux]*/*.[ch]'
        'sound/*.[ch]' 'tools/[pt]*/*' 'Documentation/*.[rty]*') folder
    tar --use-compress-program='xz --decompress --threads=0' -xf "$source_tar" -C "$1" --strip-components=1 --wildcards --anchored \
        "${skip[@]/#/--exclude=linux-source-$series/}"
    for folder in clk firmware gpu media soc; do : >"$1/drivers/$folder/Makefile"; done
}

# Prints the compiler's progress from its log every 20 s, until it is killed.
tick() {
    exec 9>&- >/dev/null
    while sleep 20 2>/dev/null; do say "$(grep -c '^  CC ' "$1") files compiled (there are about $2)"; done
}

# A patch that does not apply is an error. The log names it.
apply_patches() {
    local patch
    for patch in "$here/patches/$series"/*.patch; do
        echo "applying $patch"
        patch --batch --fuzz=0 -p1 -d "$1" <"$patch" || return
    done
}

build_kernel() {
    # Built in its final folder, since the makefiles contain absolute paths. `linux` is created last and marks the build
    # complete.
    local work=$kernel log=$kernel.log
    incomplete=$work
    rm -rf "$work"
    mkdir -p "$work/source" "$work/build"
    say "building Linux $version with $jobs jobs (some minutes; log: $log)"
    : >"$log"
    tick "$log" 720 &
    ticker=$!
    # Each step is joined by `&&`: `set -e` has no effect before `||`.
    {
        unpack "$work/source" &&
            apply_patches "$work/source" &&
            cp "$here/uml"/*.h "$work/source/arch/um/include/shared/" &&
            cp "$here/config.fragment" "$work/build/fragment" &&
            make -C "$work/source" ARCH=um O="$work/build" KCONFIG_ALLCONFIG="$work/build/fragment" allnoconfig &&
            make -C "$work/build" ARCH=um KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' \
                KBUILD_BUILD_USER=qbed KBUILD_BUILD_HOST=qbed KCFLAGS="$flags" -j"$jobs" linux modules
    } >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "the kernel did not build; full log: $log"; }
    local missing
    missing=$(grep -E '^CONFIG_[A-Z0-9_]+=y' "$work/build/fragment" | while read -r option; do
        grep -qx "$option" "$work/build/.config" || grep -qsx "${option%=y}" "$here/patches/$series/absent" || echo "${option%=y}"
    done) || true
    [ -z "$missing" ] || die "options missing from the configuration: $(echo $missing)"
    strip --strip-debug -o "$work/linux.new" "$work/build/linux"
    # Keep what modules need (headers, Module.symvers, scripts); delete the kernel's objects and sources.
    find "$work/build" \( -name '*.o' -o -name '*.a' \) ! -path '*/scripts/*' -delete
    rm -f "$work/build"/{linux,vmlinux,vmlinux.unstripped,.tmp_vmlinux*}
    find "$work/source" -name '*.c' ! -path '*/scripts/*' -delete
    rm -rf "$work/source"/{Documentation,drivers,sound,fs,samples,tools/testing}
    mv "$work/linux.new" "$work/linux"
    kill $ticker
    incomplete= ticker=
}
[ -x "$kernel/linux" ] || build_kernel
print_result_and_exit
