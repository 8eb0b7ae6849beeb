#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the kernel modules (kernel/modules/NAME/), every scheme's qdisc (schemes/NAME/kernel/) and every congestion
# control (congestion/NAME/kernel/) into the cache of a kernel that kernel/build.sh built. Each module has its own hash,
# of its files and of the shared headers, so an edit rebuilds one module.
#
#   kernel/modules.sh KERNEL            prints a hash over all of them, then the folder of each module's build
#   kernel/modules.sh KERNEL REPOSITORY     the same for a user's repository, and for qrate if its schemes have controllers
#   kernel/modules.sh --stage FOLDER    only creates the source folder for make (modules/Kbuild has the command)
#
# Every folder with a Kbuild is a module. The code that is generated from scheme.yml and congestion.yml is added by the
# package qbed, with the Python of .venv or of QBED_PYTHON. The module qrate contains every scheme's controllers
# (schemes/NAME/host/). A file ONE.crate in a module's folder names a crate that is linked as ONE.o
# (kernel/rust-object.sh).
set -euo pipefail
shopt -s nullglob
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
shipped=$root # the folder with schemes and congestion controls: in a wheel, the one above its sources
[ -d "$root/schemes" ] || shipped=$(dirname "$root")
jobs=${QBED_JOBS:-$(($(nproc) + 1))}

say() { printf 'modules: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

stage() {
    local kbuild kbuilds folder name crate object
    kbuilds=("$here"/modules/*/Kbuild "$shipped"/{schemes,congestion}/*/kernel/Kbuild)
    if [ -n "$repository" ]; then
        kbuilds=("$repository"/schemes/*/host/*.yml)
        [ ${#kbuilds[@]} -eq 0 ] || kbuilds=("$here/modules/qrate/Kbuild")
        kbuilds+=("$repository"/{schemes,congestion}/*/kernel/Kbuild)
    fi
    mkdir -p "$1"
    cp -r "$here/include" "$here/modules/Kbuild" "$1/"
    for kbuild in "${kbuilds[@]}"; do
        folder=$(dirname "$kbuild")
        name=$(basename "${folder%/kernel}")
        [ ! -e "$1/$name" ] || die "$folder: another module has a folder of this name"
        cp -r "$folder" "$1/$name"
    done
    find "$1" \( -name '.*' -o -name '*~' \) -type f -delete # editor files, which tools/sources ignores as well
    for crate in "$1"/*/*.crate; do
        object=$("$here/rust-object.sh" "$(cat "$crate")") || die "${crate##*/}: see above"
        cp "$object" "${crate%.crate}.o_shipped"
    done
    [ -n "$repository" ] || export QBED_SCHEMES=$shipped/schemes QBED_CONGESTION=$shipped/congestion
    QBED_REPOSITORY=$repository "${QBED_PYTHON:-$root/.venv/bin/python}" -m qbed.schemes.generate kernel "$1" ||
        die "cannot generate the code of schemes and congestion controls: see above, or run make setup"
}

repository=${2:-}
case ${1:-} in
    --stage) repository=; stage "${2:?expected a folder}"; exit ;;
    "" | -*) sed -n '3,14s/^# \?//p' "$0" >&2; exit 2 ;;
esac

kernel=$1
[ ! -e "$kernel/same-modules/build" ] || kernel=$(realpath "$kernel/same-modules") # kernel/build.sh has compared them
kernel_hash=$(basename "$kernel")
built=$kernel/modules
work=$(mktemp -d "$kernel/.modules-XXXXXX")
build_dir=
trap 'trap "" INT TERM HUP; rm -rf "$work" $build_dir' EXIT
trap 'exit 130' INT TERM HUP
stage "$work/source"

# Hashes names and contents, so that a renamed file changes the hash.
hash_of() { (cd "$work/source" && find "$@" -type f | sort | xargs sha256sum | sha256sum | cut -c1-16); }
shared="$kernel_hash $(hash_of Kbuild include)"
declare -A folders=()
for kbuild in "$work"/source/*/Kbuild; do
    name=$(basename "$(dirname "$kbuild")")
    folders[$name]=$built/$name-$(echo "$shared $(hash_of "$name")" | sha256sum | cut -c1-16)
done

print_result_and_exit() {
    printf '%s\n' "${folders[@]##*/}" | sort | sha256sum | cut -c1-16
    printf '%s\n' "${folders[@]}" | sort
    exit
}

find_missing() {
    local name
    missing=()
    for name in "${!folders[@]}"; do [ -d "${folders[$name]}" ] || missing+=("$name"); done
}

# Extracts compiler messages from a log, with the paths of the checkout instead of those of the copy. Newer kernels'
# makefiles print `NAME/FILE`.
compiler_messages() {
    local name folder script=()
    for name in "${missing[@]}"; do
        folder=kernel/modules/$name
        [ -d "$root/$folder" ] || folder=schemes/$name/kernel
        [ -d "${repository:-$root}/$folder" ] || folder=congestion/$name/kernel
        script+=(-e "s,\($build_dir/\|\(^\|[ '(]\)\)$name/\([A-Za-z0-9_]*\.[chS]\)\>,\2$folder/\3,g")
    done
    sed "${script[@]}" -e "s,$build_dir/include/,kernel/include/,g" "$1" |
        grep -v -e '^  [A-Z]' -e '^make\(\[[0-9]*\]\)\?: '
}

# Builds the missing modules in one make, which takes most of its time before it compiles. Modules may contain paths
# (__FILE__), so the build directory is always the same. Each result is moved into place atomically.
build() {
    local log=$kernel/modules.log name module
    build_dir=$kernel/modules.new
    rm -rf "$build_dir"
    mv "$work/source" "$build_dir"
    make -C "$kernel/build" ARCH=um M="$build_dir" FOLDERS="${missing[*]}" -j"$jobs" modules >"$log" 2>&1 </dev/null ||
        { compiler_messages "$log" | tail -n 30 >&2 || true; die "the modules did not build; full log: $log"; }
    mkdir -p "$built"
    for name in "${missing[@]}"; do
        mkdir "$work/$name"
        for module in "$build_dir/$name"/*.ko; do
            strip --strip-debug -o "$work/$name/$(basename "$module")" "$module"
            mv "$module" "$work/$name/$(basename "$module" .ko).lines" # line numbers for panics (qbed.substrates.panics)
        done
        mv -T "$work/$name" "${folders[$name]}"
    done
    rm -rf "$build_dir"
}

find_missing
[ ${#missing[@]} -gt 0 ] || print_result_and_exit
# One build at a time for a kernel; a waiting one then finds the result.
. "$root/tools/build-lock"
build_lock "$kernel/.lock" "building kernel modules (${missing[*]})"
find_missing
[ ${#missing[@]} -eq 0 ] || build
print_result_and_exit
