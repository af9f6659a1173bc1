#!/usr/bin/env bash
# build.sh cloud|generic AGENT_BINARY [--debug-shell]: kernel and initramfs that a machine boots over the network.
#
# The statically linked agent is /init, so PID 1 is the agent itself. Beside it there are only kernel modules:
#   /lib/modules/*.ko         as Debian signed them
#   /etc/rackwright/modules   their file names, one a line, in the order in which to load them with finit_module(2)
# and the empty folders that the agent mounts on. No shell, no C library, no firmware files.
# --debug-shell adds busybox (boot with rdinit=/bin/sh).
#
# Writes $OUT/ramdisk/KIND/{vmlinuz,initrd}; not rebuilt while agent, module list, packages and scripts are the same.
# cloud: small and quick, virtio and NVMe only, for virtual machines. generic: real servers.
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

usage() { die "usage: $0 cloud|generic AGENT_BINARY [--debug-shell]"; }
case $# in 2 | 3) ;; *) usage ;; esac
kind=$1 agent=$2 shell=${3:-}
case $kind in cloud) flavour=cloud-amd64 ;; generic) flavour=amd64 ;; *) usage ;; esac
case $shell in '' | --debug-shell) ;; *) usage ;; esac
need modprobe cpio zstd objdump flock sha256sum
[ -f "$agent" ] || die "no agent binary at $agent; 'make ramdisk' builds it"
if objdump -p "$agent" | grep -q NEEDED; then
    die "$agent is linked dynamically, but there are no libraries in the ramdisk; build it with -C target-feature=+crt-static"
fi
"$IMAGES/payload.sh"

target=$OUT/ramdisk/$kind
one_at_a_time "ramdisk-$kind"
wanted=$(digest "$agent" "$IMAGES/ramdisk/modules.cloud" "$IMAGES/ramdisk/modules.generic" \
    "$IMAGES/ramdisk/build.sh" "$IMAGES/lib.sh" "shell=$shell" "$(payload_version)")
if fresh "$target/stamp" "$wanted" "$target/vmlinuz" "$target/initrd"; then
    exit 0
fi

kver=$(kernel_version "$flavour")
work=$(mktemp -d "$OUT/ramdisk.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree"/{dev,etc/rackwright,proc,run,sys,tmp}
install -m 755 "$agent" "$tree/init"
mapfile -t modules < <(module_names "$IMAGES/ramdisk/modules.$kind")
collect_modules "$kver" "$tree/lib/modules" "$tree/etc/rackwright/modules" "${modules[@]}"
if [ -n "$shell" ]; then
    install -D -m 755 "$PAYLOAD/root/bin/busybox" "$tree/bin/busybox"
    ln -s busybox "$tree/bin/sh"
fi
pack_initramfs "$tree" "$work/initrd" 19
cp "$PAYLOAD/root/boot/vmlinuz-$kver" "$work/vmlinuz"

mkdir -p "$target"
mv "$work/vmlinuz" "$work/initrd" "$target/"
printf '%s\n' "$wanted" >"$target/stamp"
say "$kind: kernel $kver, $(wc -l <"$tree/etc/rackwright/modules") modules of $(du -sb "$tree/lib/modules" | awk '{ printf "%.1f", $1 / 1048576 }') MiB, agent of $(stat -c %s "$agent" | awk '{ printf "%.1f", $1 / 1048576 }') MiB"
report "$target/vmlinuz" "$target/initrd"
