# shellcheck shell=bash
# lib.sh: what the image builders share. Sourced after `set -euo pipefail`, never run.
#
# Settings (environment):
#   OUT     folder for everything that is built      (default: target/images of this checkout)
#   SUITE   Debian release that the images are of    (default: bookworm)
#   MIRROR  Debian mirror                            (default: the one that mmdebstrap knows for SUITE)
#   UPDATE  1: ask Debian for newer packages; else what was downloaded once is used again, also offline

IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$IMAGES")
OUT=${OUT:-$REPO/target/images}
SUITE=${SUITE:-bookworm}
MIRROR=${MIRROR:-}
PAYLOAD=$OUT/payload
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
export OUT SUITE MIRROR

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

# need COMMAND...: every command is there, or one error that names all that are not.
need() {
    local command missing=()
    PATH=$PATH:/usr/sbin:/sbin
    for command in "$@"; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    [ ${#missing[@]} -eq 0 ] || die "not installed: ${missing[*]}; run 'make deps'"
}

# as_root COMMAND...: directly when root, else by sudo. Files of an image belong to root, so their makers must be root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- "$@"
    else
        die "'$1' needs root rights and sudo is not installed: run this as root"
    fi
}

# one_at_a_time NAME: waits until no other process holds the lock NAME; held until this process ends.
one_at_a_time() {
    exec 9>"$OUT/.$1.lock"
    flock 9
}

# digest [TEXT|FILE]...: SHA-256 over the arguments; a file counts by its content, anything else as itself.
digest() {
    local item
    for item in "$@"; do
        if [ -f "$item" ]; then sha256sum <"$item"; else printf '%s\n' "$item"; fi
    done | sha256sum | cut -d' ' -f1
}

# fresh STAMP DIGEST OUTPUT...: true when every output is there and STAMP says that it was made from DIGEST.
fresh() {
    local stamp=$1 wanted=$2 output
    shift 2
    for output in "$@"; do [ -e "$output" ] || return 1; done
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]
}

# payload_version: digest of the versions of every package that was downloaded.
payload_version() { digest "$PAYLOAD/versions"; }

# kernel_version amd64|cloud-amd64: release of the downloaded kernel of this flavour.
kernel_version() {
    local path found=()
    for path in "$PAYLOAD/root/boot/vmlinuz-"*; do
        case ${path##*/vmlinuz-} in
        *-cloud-amd64) [ "$1" = cloud-amd64 ] && found+=("${path##*/vmlinuz-}") ;;
        *-amd64) [ "$1" = amd64 ] && found+=("${path##*/vmlinuz-}") ;;
        esac
    done
    [ ${#found[@]} -eq 1 ] || die "expected one kernel of flavour $1 in $PAYLOAD/root/boot, found ${#found[@]}; run images/payload.sh"
    printf '%s\n' "${found[0]}"
}

# module_names LIST...: the module names in these files; '#' starts a comment, 'include FILE' (same folder) includes.
module_names() {
    local list folder word rest
    for list in "$@"; do
        folder=$(dirname "$list")
        while read -r word rest; do
            case $word in
            '' | '#'*) ;;
            include) module_names "$folder/$rest" ;;
            *) printf '%s\n' "$word" ;;
            esac
        done <"$list"
    done
}

# collect_modules KVER FOLDER INDEX NAME...: copies the modules and all they depend on into FOLDER and writes
# their file names to INDEX in the order in which to load them. A module that this kernel does not have is an error;
# one that is built in needs nothing.
# Modules stay byte for byte as Debian signed them: stripped ones are refused under Secure Boot.
collect_modules() {
    local kver=$1 folder=$2 index=$3 name kind path file plan
    shift 3
    mkdir -p "$folder"
    : >"$index"
    for name in "$@"; do
        plan=$(modprobe -d "$PAYLOAD/root" -S "$kver" --show-depends "$name" 2>/dev/null) || die "kernel $kver has no module '$name'"
        while read -r kind path _; do
            [ "$kind" = insmod ] || continue
            file=${path##*/}
            [ -e "$folder/$file" ] && continue
            cp "$path" "$folder/$file"
            printf '%s\n' "$file" >>"$index"
        done <<<"$plan"
    done
}

# pack_initramfs FOLDER OUTPUT LEVEL: newc archive of FOLDER, owned by root, in a fixed order, compressed by zstd.
pack_initramfs() {
    find "$1" -exec touch -h -d @0 {} +
    (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) |
        zstd -q -f -T2 "-$3" -o "$2"
}

# with_payload_libraries COMMAND...: runs a program of the payload with the payload's own C library.
with_payload_libraries() {
    local command=$1
    shift
    "$PAYLOAD/root/lib64/ld-linux-x86-64.so.2" \
        --library-path "$PAYLOAD/root/lib/x86_64-linux-gnu:$PAYLOAD/root/usr/lib/x86_64-linux-gnu" \
        "$PAYLOAD/root/$command" "$@"
}

# copy_program ROOT PATH: copies a program of the payload into the tree ROOT with the shared libraries it needs.
copy_program() {
    local root=$1 path=$2 library
    install -D -m 755 "$PAYLOAD/root/$path" "$root/$path"
    while read -r library; do
        case $library in
        ld-linux-*) install -D -m 755 "$PAYLOAD/root/lib64/$library" "$root/lib64/$library" ;;
        *) copy_library "$root" "$library" ;;
        esac
    done < <(needed_libraries "$PAYLOAD/root/$path")
}

needed_libraries() { objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }'; }

copy_library() {
    local root=$1 name=$2 source='' folder target
    for folder in lib/x86_64-linux-gnu usr/lib/x86_64-linux-gnu; do
        [ -e "$PAYLOAD/root/$folder/$name" ] && source=$PAYLOAD/root/$folder/$name
    done
    [ -n "$source" ] || die "library $name is in no downloaded package; add its package to images/payload.sh"
    target=$root/lib/x86_64-linux-gnu/$name
    [ -e "$target" ] && return
    install -D -m 755 "$source" "$target"
    if [ ! -e "$root/lib64/ld-linux-x86-64.so.2" ]; then
        install -D -m 755 "$PAYLOAD/root/lib64/ld-linux-x86-64.so.2" "$root/lib64/ld-linux-x86-64.so.2"
    fi
    while read -r name; do
        case $name in ld-linux-*) ;; *) copy_library "$root" "$name" ;; esac
    done < <(needed_libraries "$source")
}

# report PATH...: size of each file in bytes and MiB.
report() {
    local path
    for path in "$@"; do
        awk -v n="$(stat -c %s "$path")" -v p="${path#"$REPO/"}" 'BEGIN { printf "%12d bytes %8.1f MiB  %s\n", n, n / 1048576, p }'
    done
}
