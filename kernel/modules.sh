#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the kernel modules, ours (kernel/modules/NAME/) and every scheme's (schemes/NAME/kernel/), each into the cache
# of a kernel that kernel/build.sh built, under the hash of that module's own files and of the headers that all share.
# So an edit builds one.
#
#   kernel/modules.sh KERNEL            prints a hash over all of them, then the folder of each module's build
#   kernel/modules.sh --stage FOLDER    only makes a folder with what make sees (modules/Kbuild says how to build there)
#
# A folder with a Kbuild is a module: nothing else names it. A scheme's has the code that is generated from scheme.yml
# beside its own, by the package qbed: that of .venv, or of the Python that QBED_PYTHON names. The module qrate has every
# scheme's controllers (schemes/NAME/host/). A file ONE.crate in a module's folder names a crate that is linked in as ONE.o
# (kernel/rust-object.sh).
set -euo pipefail
shopt -s nullglob
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
jobs=${QBED_JOBS:-$(($(nproc) + 1))}

say() { printf 'modules: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

stage() {
    local kbuild folder name crate object
    mkdir -p "$1"
    cp -r "$here/include" "$here/modules/Kbuild" "$1/"
    for kbuild in "$here"/modules/*/Kbuild "$root"/schemes/*/kernel/Kbuild; do
        folder=$(dirname "$kbuild")
        name=$(basename "${folder%/kernel}")
        [ ! -e "$1/$name" ] || die "$folder: there is another module in a folder of that name"
        cp -r "$folder" "$1/$name"
    done
    find "$1" \( -name '.*' -o -name '*~' \) -type f -delete # an editor's, which tools/sources does not count either
    for crate in "$1"/*/*.crate; do
        object=$("$here/rust-object.sh" "$(cat "$crate")") || die "${crate##*/}: see above"
        cp "$object" "${crate%.crate}.o_shipped"
    done
    QBED_SCHEMES=$root/schemes "${QBED_PYTHON:-$root/.venv/bin/python}" -m qbed.schemes.generate kernel "$1" ||
        die "no code of the schemes: see above, or run make setup"
}

case ${1:-} in
    --stage) stage "${2:?expected a folder}"; exit ;;
    "" | -*) sed -n '3,13s/^# \?//p' "$0" >&2; exit 2 ;;
esac

kernel=$1
kernel_hash=$(basename "$kernel")
built=$kernel/modules
work=$(mktemp -d "$kernel/.modules-XXXXXX")
place=
trap 'trap "" INT TERM HUP; rm -rf "$work" $place' EXIT
trap 'exit 130' INT TERM HUP
stage "$work/source"

# Names and contents, so that a file that moves is another module.
hash_of() { (cd "$work/source" && find "$@" -type f | sort | xargs sha256sum | sha256sum | cut -c1-16); }
shared="$kernel_hash $(hash_of Kbuild include)"
declare -A folders=()
for kbuild in "$work"/source/*/Kbuild; do
    name=$(basename "$(dirname "$kbuild")")
    folders[$name]=$built/$name-$(echo "$shared $(hash_of "$name")" | sha256sum | cut -c1-16)
done

done_here() {
    printf '%s\n' "${folders[@]##*/}" | sort | sha256sum | cut -c1-16
    printf '%s\n' "${folders[@]}" | sort
    exit
}

find_missing() {
    local name
    missing=()
    for name in "${!folders[@]}"; do [ -d "${folders[$name]}" ] || missing+=("$name"); done
}

# Of a log what the compiler said, with each file's place in the checkout instead of its copy's. Newer kernels' makefiles
# say `NAME/FILE`.
in_checkout() {
    local name of script=()
    for name in "${missing[@]}"; do
        of=kernel/modules/$name
        [ -d "$root/$of" ] || of=schemes/$name/kernel
        script+=(-e "s,\($place/\|\(^\|[ '(]\)\)$name/\([A-Za-z0-9_]*\.[chS]\)\>,\2$of/\3,g")
    done
    sed "${script[@]}" -e "s,$place/include/,kernel/include/,g" "$1" |
        grep -v -e '^  [A-Z]' -e '^make\(\[[0-9]*\]\)\?: '
}

# Those that are not there, in one make: most of its time is spent before it compiles. A path may come to be in a module
# (__FILE__), so they are always built in the same place; each appears whole or not at all.
build() {
    local log=$kernel/modules.log name module
    place=$kernel/modules.new
    rm -rf "$place"
    mv "$work/source" "$place"
    make -C "$kernel/build" ARCH=um M="$place" FOLDERS="${missing[*]}" -j"$jobs" modules >"$log" 2>&1 </dev/null ||
        { in_checkout "$log" | tail -n 30 >&2 || true; die "the modules did not build; the whole log is $log"; }
    mkdir -p "$built"
    for name in "${missing[@]}"; do
        mkdir "$work/$name"
        for module in "$place/$name"/*.ko; do
            strip --strip-debug -o "$work/$name/$(basename "$module")" "$module"
            mv "$module" "$work/$name/$(basename "$module" .ko).lines" # where a panic was (qbed.substrates.panics)
        done
        mv -T "$work/$name" "${folders[$name]}"
    done
    rm -rf "$place"
}

find_missing
[ ${#missing[@]} -gt 0 ] || done_here
# One build at a time for each user; a second one waits and then finds the result.
exec 9>"$(dirname "$kernel")/.lock"
flock 9
find_missing
[ ${#missing[@]} -eq 0 ] || build
done_here
