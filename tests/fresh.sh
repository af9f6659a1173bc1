#!/usr/bin/env bash
# fresh.sh [TARGET...]: runs make's TARGETs (demo and test) on a machine where only Rust, git, make and sudo are there.
#
# The machine is a minimal Debian in a folder, with mounts and processes of its own and a fresh clone of this checkout's last
# commit. Of this computer it gets the Rust toolchain (nothing else that cargo installed), and the settings by which packages
# are reached from here: apt's sources, certificates, proxies, pip's and cargo's configuration. The network is this computer's.
#
# Settings (environment):
#   FRESH   folder of the machine   (default: target/fresh of this checkout; about 20 GB)
#   SUITE   Debian release          (default: bookworm)
#   WHO     user that runs make     (default: builder, an ordinary user who may use sudo; or root)
#   KEEP    1: leave the folder     (default: it is removed when all went well)
set -euo pipefail
TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(dirname "$TESTS")
FRESH=${FRESH:-$REPO/target/fresh}
SUITE=${SUITE:-bookworm}
WHO=${WHO:-builder}
KEEP=${KEEP:-}

say() { printf 'fresh: %s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

# What makes packages reachable from this computer; each is taken along if it is there.
SETTINGS=(/etc/apt /etc/ssl/certs /usr/local/share/ca-certificates /etc/pip.conf /etc/hosts /etc/resolv.conf /etc/sudoers.d/proxy)

# lay_out: the minimal Debian, with a user, the settings and Rust in it.
lay_out() {
    local setting proxy
    say "a minimal Debian ($SUITE) in $FRESH"
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,git,make,sudo "$SUITE" "$FRESH"
    for setting in "${SETTINGS[@]}"; do
        [ -e "$setting" ] || continue
        rm -rf "${FRESH:?}$setting"
        mkdir -p "$FRESH$(dirname "$setting")"
        cp -aL "$setting" "$FRESH$setting"
    done
    [ "$WHO" = root ] || chroot "$FRESH" useradd --create-home --shell /bin/bash "$WHO"
    printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$WHO" >"$FRESH/etc/sudoers.d/fresh"
    # What sudo would drop and package managers need.
    printf 'Defaults env_keep += "http_proxy https_proxy no_proxy SSL_CERT_FILE"\n' >>"$FRESH/etc/sudoers.d/fresh"
    home=$(chroot "$FRESH" sh -c "echo ~$WHO")
    mkdir -p "$FRESH$home/.cargo/bin" "$FRESH$home/.rustup/toolchains/$toolchain" "$FRESH/repository"
    for proxy in rustup cargo rustc rustdoc rustfmt cargo-fmt cargo-clippy clippy-driver; do
        cp -L "$cargo_home/bin/$proxy" "$FRESH$home/.cargo/bin/$proxy"
    done
    for setting in config config.toml; do
        if [ -f "$cargo_home/$setting" ]; then cp -L "$cargo_home/$setting" "$FRESH$home/.cargo/"; fi
    done
    chroot "$FRESH" chown -R "$WHO:" "$home"
}

# inside: in a mount and process namespace of its own; makes FRESH the root and runs make there.
inside() {
    local home=$1 toolchain=$2 sysroot=$3
    shift 3
    mount --make-rprivate /
    mount --bind "$FRESH" "$FRESH"
    mount --rbind /dev "$FRESH/dev"
    mount --rbind /sys "$FRESH/sys"
    # Open to all, as Debian's udev has it: the lab of an ordinary user makes its network with it.
    mknod -m 666 "$FRESH/run/tun" c 10 200
    mount --bind "$FRESH/run/tun" "$FRESH/dev/net/tun"
    mount -t proc proc "$FRESH/proc"
    mount -t tmpfs tmpfs "$FRESH/tmp"
    mount --bind "$(git -C "$REPO" rev-parse --absolute-git-dir)" "$FRESH/repository"
    mount -o remount,bind,ro "$FRESH/repository"
    mount --bind "$sysroot" "$FRESH$home/.rustup/toolchains/$toolchain"
    mount -o remount,bind,ro "$FRESH$home/.rustup/toolchains/$toolchain"
    # A root that was only changed by chroot may make no user namespaces, and the lab of an ordinary user needs one.
    mkdir -p "$FRESH/.old"
    cd "$FRESH"
    pivot_root . .old
    umount -l /.old
    local passed=() name
    for name in http_proxy https_proxy no_proxy SSL_CERT_FILE PIP_CERT PIP_INDEX_URL PIP_DEFAULT_TIMEOUT CARGO_HTTP_CAINFO TERM; do
        [ -z "${!name:-}" ] || passed+=("$name=${!name}")
    done
    # shellcheck disable=SC2016 # expanded by the shell inside
    exec chroot --userspec="$WHO" / /usr/bin/env -i HOME="$home" USER="$WHO" LANG=C.UTF-8 RUST_BACKTRACE=0 \
        PATH="$home/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "${passed[@]}" \
        bash -euo pipefail -c '
            cd
            git config --global --add safe.directory /repository
            git clone --quiet /repository rackwright
            cd rackwright
            printf "fresh: %s, as %s\n" "$(git log -1 --format=%h\ %s)" "$USER"
            for target; do
                start=$SECONDS
                make "$target"
                printf "fresh: make %s passed in %s s\n" "$target" "$((SECONDS - start))"
            done
        ' fresh "$@" </dev/null
}

if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
fi
[ $# -gt 0 ] || set -- demo test
[ "$(id -u)" -eq 0 ] || die "a machine in a folder is made by root: run this with sudo"
command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed; run 'make deps'"
cargo_home=${CARGO_HOME:-$HOME/.cargo}
[ -x "$cargo_home/bin/rustup" ] || die "no rustup in $cargo_home/bin: the toolchain is taken along from there"
toolchain=$(cd "$REPO" && rustup show active-toolchain | cut -d' ' -f1)
sysroot=$(cd "$REPO" && rustc --print sysroot | xargs realpath)
[ ! -e "$FRESH" ] || die "$FRESH is there already; remove it (rm -rf --one-file-system) or name another folder in FRESH"
[ -z "$(git -C "$REPO" status --porcelain)" ] || say "note: what is not committed is not in the clone"
mkdir -p "$(dirname "$FRESH")"
home=
lay_out
export FRESH WHO
unshare --mount --pid --fork --kill-child "$0" --inside "$home" "$toolchain" "$sysroot" "$@"
[ -n "$KEEP" ] || rm -rf --one-file-system "$FRESH"
say "passed: $*"
