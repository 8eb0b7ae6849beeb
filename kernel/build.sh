#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the virtual-time kernel into a cache, once for each combination of source, configuration and patches, and prints
# the folder that holds `linux` and what modules are built with (kernel/modules.sh), and the kernel's version.
#
#   kernel/build.sh             the default series (6.12)
#   QBED_KERNEL=7.2 kernel/build.sh      another series that has a folder under kernel/patches/
#
# The sources are Debian's own package linux-source-SERIES: installed, or else (a newer series on an older Debian)
# fetched with apt's tools and keys from Debian's testing, without touching this machine's own sources.
# Which of our files count is in tools/sources. What is interrupted leaves nothing but its log.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
series=${QBED_KERNEL:-6.12}
cache=${QBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qbed}
jobs=${QBED_JOBS:-$(($(nproc) + 1))}
# Tables for unwinding, which only a debugger of user programs reads, take a twentieth of the compiler's time.
flags=-fno-asynchronous-unwind-tables

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
files() { "$root/tools/sources" "$1" | sed "s,^,$root/,"; }
kernel_hash=$({ echo "$version $compiler $flags"; files kernel | xargs cat; } | sha256sum | cut -c1-16)
kernel=$cache/kernel/$series-$kernel_hash
mkdir -p "$cache/kernel"
done_here() { printf '%s %s\n' "$kernel" "$version"; exit; }

# One build at a time for each user; a second one waits and then finds the result.
[ ! -x "$kernel/linux" ] || done_here
exec 9>"$cache/kernel/.lock"
flock 9

# The work that is half done: removed at the end, however that comes.
half= ticker=
trap 'trap "" INT TERM HUP; kill $ticker 2>/dev/null || true; rm -rf $half' EXIT
trap 'exit 130' INT TERM HUP

# Drivers, architectures and file systems that User-Mode Linux does not have are two thirds of the source: only what configures them
# is unpacked, and make is kept out of hundreds of folders in which it would find nothing to do.
unpack() {
    local skip=('arch/[a-t]*/*.'{'[chS]*','dts*'} 'drivers/[ad-mo-su-z]*/*.[ch]' 'drivers/net/[ew]*/*.[ch]' 'fs/[befgjloqux]*/*.[ch]'
        'sound/*.[ch]' 'tools/[pt]*/*' 'Documentation/*.[rty]*') folder
    tar --use-compress-program='xz --decompress --threads=0' -xf "$source_tar" -C "$1" --strip-components=1 --wildcards --anchored \
        "${skip[@]/#/--exclude=linux-source-$series/}"
    for folder in clk firmware gpu media soc; do : >"$1/drivers/$folder/Makefile"; done
}

# Says now and then how far a log's compiler has come, until it is killed.
tick() {
    exec 9>&- >/dev/null
    while sleep 20 2>/dev/null; do say "$(grep -c '^  CC ' "$1") files compiled (there are about $2)"; done
}

build_kernel() {
    # Built where it is going to live, since the makefiles hold absolute paths; `linux` appears last and says that it is whole.
    local work=$kernel log=$kernel.log
    half=$work
    rm -rf "$work"
    mkdir -p "$work/source" "$work/build"
    say "building Linux $version with $jobs jobs (some minutes; log: $log)"
    : >"$log"
    tick "$log" 720 &
    ticker=$!
    {
        unpack "$work/source"
        for patch in "$here/patches/$series"/*.patch; do
            patch --batch --fuzz=0 -p1 -d "$work/source" <"$patch"
        done
        cp "$here/uml"/*.h "$work/source/arch/um/include/shared/"
        cp "$here/config.fragment" "$work/build/fragment"
        make -C "$work/source" ARCH=um O="$work/build" KCONFIG_ALLCONFIG="$work/build/fragment" allnoconfig
        make -C "$work/build" ARCH=um KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' \
            KBUILD_BUILD_USER=qbed KBUILD_BUILD_HOST=qbed KCFLAGS="$flags" -j"$jobs" linux modules
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
    kill $ticker
    half= ticker=
}
[ -x "$kernel/linux" ] || build_kernel
done_here
