#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds a crate of crates/ as one object for a kernel module (modules/Kbuild), into the cache under the hash of its
# sources. Prints its path.
#
#   kernel/rust-object.sh CRATE     a folder of crates/: its feature `kernel` is a no_std library with C functions named qp4_*
#   kernel/rust-object.sh --ship CRATE FOLDER     also copies the object and its hashes to FOLDER (tools/wheel)
#
# An object depends on no kernel: it includes none of Linux's headers. kernel/rust-objects, which only a wheel has, contains
# built objects with the hashes of their sources and content. If both match, the object is used and no cargo is needed.
#
# With fat LTO, `core` is compiled with the code generation options of a User-Mode Linux module: code anywhere in memory,
# no GOT, no red zone. The functions that the crate imports are in the module's C code.
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "$0")/.." && pwd)
ship=
[ "${1:-}" != --ship ] || { shift && ship=$(cd "${2:?expected a crate and a folder}" && pwd); }
crate=${1:?expected a folder of crates/}
cache=${QBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qbed}
target=x86_64-unknown-linux-gnu # explicit, so that proc macros are built without these options
flags="-C code-model=large -C relocation-model=static -C no-redzone=yes -C force-unwind-tables=no"

say() { printf 'rust: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

cd "$root"
[ -f "crates/$crate/Cargo.toml" ] || die "there is no crates/$crate"
# The crate and its dependencies in this repository.
mapfile -t crates < <(printf '%s\n' "$crate"; sed -n '/^\[dependencies\]/,/^\[/s,.*path = "\.\./\([^"]*\)".*,\1,p' "crates/$crate/Cargo.toml")
sources() { find "${crates[@]/#/crates/}" -type f -path '*/src/*' ! -name '.*' ! -name '*~' | sort; printf 'crates/%s/Cargo.toml\n' "${crates[@]}"; }
hash_of() { sha256sum | cut -d ' ' -f 1; }
all_sources() { echo "$flags"; sources | xargs sha256sum; sha256sum Cargo.toml Cargo.lock kernel/rust-object.sh; }
sources_hash=$(all_sources | hash_of)

# Prints the path of a shipped object and exits if it is built from these sources and is as it was built.
shipped=kernel/rust-objects/$crate
if [ -z "$ship" ] && [ -f "$shipped.o" ]; then
    read -r shipped_sources shipped_content <"$shipped.hashes" || true
    if [ "$shipped_sources" != "$sources_hash" ]; then
        say "$root/$shipped.o is of other sources"
    elif [ "$shipped_content" != "$(hash_of <"$shipped.o")" ]; then
        say "$root/$shipped.o is damaged"
    else
        echo "$root/$shipped.o"
        exit
    fi
fi

cargo=$(tools/cargo --which)
hash=$({ "$cargo" --version; echo "$sources_hash"; } | hash_of | cut -c1-16)
built=$cache/rust/$crate-$hash
object=$built/$crate.o
print_result_and_exit() {
    [ -z "$ship" ] || { cp "$object" "$ship/" && echo "$sources_hash $(hash_of <"$object")" >"$ship/$crate.hashes"; }
    echo "$object"
    exit
}

[ ! -f "$object" ] || print_result_and_exit
mkdir -p "$cache/rust"
. tools/build-lock
build_lock "$cache/rust/.lock" "building crates/$crate for the kernel"
[ ! -f "$object" ] || print_result_and_exit
work=$(mktemp -d "$cache/rust/.$crate-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

say "building crates/$crate for the kernel"
# Use a separate target folder: in a shared one, cargo may take the crate of another checkout that was built later.
name=$(sed -n 's/^name = "\(.*\)"/\1/p' "crates/$crate/Cargo.toml" | head -n 1)
env -u CARGO_ENCODED_RUSTFLAGS RUSTFLAGS="$flags" PATH="${cargo%/*}:$PATH" "$cargo" rustc --quiet --locked --package "$name" --no-default-features --features kernel --crate-type staticlib --profile kernel \
    --target "$target" --target-dir "$work/target" </dev/null || die "crates/$crate did not build"
library=lib${name//-/_}.a
(cd "$work" && ar x "$work/target/$target/kernel/$library")
# The crate with its dependencies is one object; the others are compiler builtins, which the kernel provides.
objects=("$work/${name//-/_}"-*.rcgu.o)
[ ${#objects[@]} = 1 ] && [ -f "${objects[0]}" ] || die "$library: expected one object of the crate, found ${objects[*]##*/}"
objcopy --strip-debug --wildcard --keep-global-symbol='qp4_*' "${objects[0]}" "$work/$crate.o"
# Merge the sections: each would be listed in /sys/module.
ld -r -T /dev/stdin -o "$work/$crate.merged" "$work/$crate.o" <<'LAYOUT'
SECTIONS {
    .text 0 : { *(.text .text.* .ltext .ltext.*) }
    .rodata 0 : { *(.rodata .rodata.* .lrodata .lrodata.*) *(.data.rel.ro .data.rel.ro.* .ldata.rel.ro .ldata.rel.ro.*) }
    .data 0 : { *(.data .data.* .ldata .ldata.*) }
    .bss 0 : { *(.bss .bss.* .lbss .lbss.*) }
    /DISCARD/ : { *(.comment) *(.note.*) *(.eh_frame) }
}
LAYOUT
strip --strip-unneeded -o "$work/$crate.o" "$work/$crate.merged"
unknown=$(readelf -rW "$work/$crate.o" | awk '/R_X86_64_/ {print $3}' | sort -u | grep -vxE 'R_X86_64_(64|PC64|32|32S|PC32|PLT32)') || true
[ -z "$unknown" ] || die "crates/$crate: relocations not supported by the module loader: $unknown"
mkdir "$work/done"
mv "$work/$crate.o" "$work/done/"
mv -T "$work/done" "$built"
print_result_and_exit
