#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the virtual-time kernel into a cache, once for each combination of source, configuration and patches. Prints the
# folder that holds `linux` and the files for building modules (kernel/modules.sh), and the kernel's version.
#
#   kernel/build.sh             the default series (6.12)
#   QBED_KERNEL=7.2 kernel/build.sh      another series that has a folder under kernel/patches/
#   kernel/build.sh --patches FOLDER     with the user's FOLDER/*.patch on top, and the options of FOLDER/config.fragment if
#                                        there is one
#   kernel/build.sh --tree FOLDER KEY    with the user's source tree of this series instead of Debian's; KEY: its content
#   kernel/build.sh --check --patches FOLDER      prints the same line without a build; fails if the kernel is not built
#
# The sources are Debian's package linux-source-SERIES: the installed one, or (for a newer series on an older Debian) one
# fetched from Debian testing with apt's tools and keys, without changing this machine's apt sources.
# tools/sources lists the files that the hash covers. An interrupted build leaves only its log.
set -euo pipefail
unset MAKEFLAGS MFLAGS # with the -s of a `make -s` around this, the log would have no lines that the progress counts

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
series=${QBED_KERNEL:-6.12}
cache=${QBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qbed}
jobs=${QBED_JOBS:-$(($(nproc) + 1))}
patches= user_tree= key= check=
# Unwind tables are not used and take 5 % of the compile time.
flags=-fno-asynchronous-unwind-tables

say() { printf 'kernel: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

while [ $# -gt 0 ]; do
    case $1 in
        --check) check=yes && shift ;;
        --patches) patches=$(cd "${2:-}" && pwd) && shift 2 || die "--patches: expected a folder" ;;
        --tree) user_tree=$(cd "${2:-}" && pwd) && key=${3:?} && shift 3 || die "--tree: expected a folder and a key" ;;
        *) die "$1: expected --check, --patches FOLDER or --tree FOLDER KEY" ;;
    esac
done
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

# Prints the user's files: patches in the order of their names, and options.
user_files() { [ -z "$patches" ] || find "$patches/" -maxdepth 1 \( -name '*.patch' -o -name config.fragment \) | LC_ALL=C sort; }
hash_of() { sha256sum | cut -c1-16; }

find_source
compiler=$(${CC:-gcc} -dumpfullversion)
files() { "$root/tools/sources" "$1" | sed "s,^,$root/,"; }
stock_sources() { echo "$version $compiler $flags"; files kernel | xargs cat; }
user_sources() { local file; user_files | while read -r file; do echo "${file##*/}"; cat "$file"; done; }
stock_hash=$(stock_sources | hash_of)
kernel_hash=$stock_hash
[ -z "$patches" ] || kernel_hash=$({ stock_sources; user_sources; } | hash_of)
if [ -n "$user_tree" ]; then
    kernel_hash=$({ stock_sources; echo "tree $key"; } | hash_of)
    source_version=$version
    version=$(sed -n 's/^\(VERSION\|PATCHLEVEL\|SUBLEVEL\) = *//p' "$user_tree/Makefile" | paste -sd.)
fi
kernel=$cache/kernel/$series-$kernel_hash
print_result_and_exit() { printf '%s %s\n' "$kernel" "$version"; exit; }

[ ! -x "$kernel/linux" ] || print_result_and_exit
[ -z "$check" ] || exit 1
# One build at a time per user; a waiting one then finds the result.
mkdir -p "$cache/kernel"
. "$root/tools/build-lock"
build_lock "$cache/kernel/.lock" "building the kernel $series${patches:+ with $patches}"
[ ! -x "$kernel/linux" ] || print_result_and_exit

# The incomplete build, removed on any exit.
incomplete= ticker=
trap 'trap "" INT TERM HUP; kill $ticker 2>/dev/null || true; rm -rf $incomplete' EXIT
trap 'exit 130' INT TERM HUP

# Two thirds of the sources are drivers, architectures and file systems that User-Mode Linux does not have: only their
# configuration files are unpacked, and empty makefiles keep make out of hundreds of folders.
mapfile -t unused <"$here/unused-sources"
unpack() {
    tar --use-compress-program='xz --decompress --threads=0' -xf "$source_tar" -C "$1" --strip-components=1 --wildcards --anchored \
        "${unused[@]/#/--exclude=linux-source-$series/}"
    empty_makefiles "$1"
}

empty_makefiles() {
    local folder
    for folder in clk firmware gpu media soc; do : >"$1/drivers/$folder/Makefile"; done
}

# Copies the user's tree, without what a build in it left.
copy_tree() {
    mkdir -p "$1" &&
        tar -C "$user_tree" --wildcards --anchored "${unused[@]/#/--exclude=./}" --exclude=./.git --exclude=./.config \
            --exclude=./include/config --exclude=./include/generated --exclude='./arch/*/include/generated' \
            --no-anchored --exclude='*.o' --exclude='*.a' --exclude='*.ko' --exclude='.*.cmd' -cf - . | tar -x -C "$1" &&
        empty_makefiles "$1" &&
        add_own_patches "$1"
}

# Prints the compiler's progress from its log every 20 s, until it is killed.
tick() {
    exec 9>&- >/dev/null
    while sleep 20 2>/dev/null; do say "$(grep -c '^  CC ' "$1") files compiled${2:+ (there are about $2)}"; done
}

# Applies patches to a source tree. A patch that does not apply is an error. The log names it.
apply_patches() {
    local tree=$1 patch
    shift
    for patch in "$@"; do
        echo "applying $patch"
        patch --batch --fuzz=0 --no-backup-if-mismatch -p1 -d "$tree" <"$patch" || { echo "$patch does not apply to Linux $version" && return 1; }
    done
}

add_own_patches() {
    apply_patches "$1" "$here/patches/$series"/*.patch && cp "$here/uml"/*.h "$1/arch/um/include/shared/"
}

configure() { make -C "$1/source" ARCH=um O="$1/build" KCONFIG_ALLCONFIG="$1/build/fragment" allnoconfig; }

compile() {
    make -C "$1/build" ARCH=um KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' \
        KBUILD_BUILD_USER=qbed KBUILD_BUILD_HOST=qbed KCFLAGS="$flags" -j"$jobs" linux modules
}

# Builds the kernel without the user's patches in a folder. Steps are joined by `&&`: `set -e` has no effect before `||`.
build_stock() {
    mkdir -p "$1/source" "$1/build" &&
        unpack "$1/source" &&
        add_own_patches "$1/source" &&
        cp "$here/config.fragment" "$1/build/fragment" &&
        configure "$1" && compile "$1"
}

# Applies the user's patches to a built tree, and compiles what they change.
build_patched() {
    local files
    mapfile -t files < <(user_files | grep '\.patch$')
    apply_patches "$1/source" "${files[@]}" &&
        { [ ! -e "$patches/config.fragment" ] || cat "$patches/config.fragment" >>"$1/build/fragment"; } &&
        rm -f "$1/build/.version" && # the number of builds, in the kernel's name
        configure "$1" && compile "$1"
}

# Turns a built tree into that of the user's sources, compiles what differs, and keeps the objects for the next change.
build_tree() {
    copy_tree "$1.new" &&
        "${QBED_PYTHON:-python3}" "$here/update_tree.py" "$1.new" "$1/source" &&
        rm -rf "$1.new" "$1/build/.version" &&
        configure "$1" && compile "$1" &&
        rm -rf "$2" && mkdir -p "${2%/*}" && cp -a --reflink=auto "$1" "$2"
}

# Runs a step of a build in a folder, with its output in a log. If it fails, the last lines of the log are the message.
logged() {
    local log=$kernel.log status=0
    : >"$log"
    tick "$log" "$1" &
    ticker=$!
    shift
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill $ticker
    ticker=
    [ $status = 0 ] || { tail -n 20 "$log" >&2; die "the kernel did not build; full log: $log"; }
}

check_options() {
    local missing
    missing=$(grep -E '^CONFIG_[A-Z0-9_]+=y' "$1/build/fragment" | while read -r option; do
        grep -qx "$option" "$1/build/.config" || grep -qsx "${option%=y}" "$here/patches/$series/absent" || echo "${option%=y}"
    done) || true
    [ -z "$missing" ] || die "options missing from the configuration: $(echo $missing)"
}

# Makes a kernel's folder ($2) of a built tree ($1), which may be the same: keeps what modules need (headers, Module.symvers,
# scripts), and deletes the kernel's objects and sources. `linux` is created last and marks the build complete.
finish_kernel() {
    check_options "$1"
    strip --strip-debug -o "$1/linux.new" "$1/build/linux"
    find "$1/build" \( -name '*.o' -o -name '*.a' \) ! -path '*/scripts/*' -delete
    rm -f "$1/build"/{linux,vmlinux,vmlinux.unstripped,.tmp_vmlinux*}
    find "$1/source" -name '*.c' ! -path '*/scripts/*' -delete
    rm -rf "$1/source"/{Documentation,drivers,sound,fs,samples,tools/testing}
    if [ "$1" != "$2" ]; then
        sed -i "s,$1/,$2/,g" "$1/build/Makefile"
        ln -sfn "$2/source" "$1/build/source"
        rm -rf "$2"
        mv -T "$1" "$2"
    fi
    mv "$2/linux.new" "$2/linux"
}

# Succeeds if modules built for one kernel are those of the other, too: headers, scripts, options and exported symbols are
# the same. The version of rustc in PATH is an option of no effect: the kernel contains no Rust.
same_modules() {
    cmp -s "$1/build/Module.symvers" "$2/build/Module.symvers" || return
    cmp -s <(grep -v RUSTC_ "$1/build/.config") <(grep -v RUSTC_ "$2/build/.config") || return
    diff -rq --no-dereference --exclude="*.orig" "$1/source" "$2/source" >/dev/null
}

# Compiles the stock kernel's objects, which are kept: a patched kernel then compiles only the files that its patches change.
# Then those of earlier sources of this series are deleted (450 MB each).
build_objects() {
    say "building Linux ${source_version:-$version} with $jobs jobs (some minutes; log: $kernel.log)"
    logged 720 build_stock "$tree"
    mv -T "$tree" "$start"
    find "$cache/kernel/objects" -mindepth 1 -maxdepth 1 -name "$series-*" ! -path "$objects" -exec rm -rf {} +
}

# The kernel without patches, of the kept objects.
finish_stock() {
    cp -a --reflink=auto "$start" "$tree"
    finish_kernel "$tree" "$stock"
}

# The objects of each tree's last build are kept, too, so that only the files that a change affects are compiled. They are
# copied to the folder in which they were built.
build_on_objects() {
    local kept=$objects/$(hash_of <<<"$user_tree")
    [ -z "$user_tree" ] || [ ! -d "$kept" ] || start=$kept
    say "building Linux $version ${patches:+with the patches }of ${patches:-$user_tree} (log: $kernel.log)"
    cp -a --reflink=auto "$start" "$tree"
    if [ -n "$patches" ]; then logged "" build_patched "$tree"; else logged "" build_tree "$tree" "$kept"; fi
    finish_kernel "$tree" "$kernel"
    ! same_modules "$stock" "$kernel" || ln -s "../${stock##*/}" "$kernel/same-modules"
}

stock=$cache/kernel/$series-$stock_hash objects=$cache/kernel/objects/$series-$stock_hash
tree=$objects/tree start=$objects/stock
incomplete="$tree $tree.new"
rm -rf $incomplete
[ -z "$patches$user_tree" ] || renice -n 10 $$ >/dev/null
[ -d "$start" ] || build_objects
[ -x "$stock/linux" ] || finish_stock # a patched kernel needs it for its modules, which it can load in most cases
[ -z "$patches$user_tree" ] || build_on_objects
print_result_and_exit
