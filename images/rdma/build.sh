#!/usr/bin/env bash
# build.sh: $OUT/rdma/{vmlinuz,initrd}, a machine with an RDMA adapter in software (soft-RoCE, the kernel's rdma_rxe), for
# the test of the traffic program (tests/tests/rdma.rs). Everything is in its ramdisk; it has no disk.
#
# Debian's kernel for real machines, libibverbs with its drivers, and the tools that /init needs. /init (images/rdma/init)
# reads from the kernel's command line what to do.
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need mmdebstrap modprobe cpio zstd flock
"$IMAGES/payload.sh"
target=$OUT/rdma
one_at_a_time rdma
wanted=$(digest "$IMAGES/rdma/build.sh" "$IMAGES/rdma/init" "$IMAGES/lib.sh" "$SUITE" "$(payload_version)")
fresh "$target/stamp" "$wanted" "$target/vmlinuz" "$target/initrd" && exit 0

work=$(mktemp -d "$OUT/rdma.XXXXXX")
trap 'as_root rm -rf "$work"' EXIT
chmod 755 "$work"
say "a machine with soft-RoCE"
# Unpacked, not installed: nothing of it is set up by scripts.
as_root mmdebstrap --quiet --mode=root --variant=extract --include=libibverbs1,ibverbs-providers,iproute2,busybox-static \
    --dpkgopt='path-exclude=/usr/share/*' "$SUITE" "$work/root" ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    die "the packages could not be unpacked"
}
tree=$work/tree
mkdir -p "$tree"/{bin,dev,etc,lib/modules,lib64,proc,run,sys,usr/lib/x86_64-linux-gnu,var}
cp -L "$work/root/bin/busybox" "$tree/bin/busybox"
for name in sh mount modprobe insmod cat tar sleep poweroff reboot mkdir ls grep; do ln -s busybox "$tree/bin/$name"; done
cp -L "$work/root/sbin/ip" "$tree/bin/ip"
# `rdma link add` makes the adapter.
program=$(find "$work/root" -name rdma -type f -perm -u+x -print -quit)
[ -n "$program" ] || die "Debian's iproute2 has no program 'rdma'"
cp "$program" "$tree/bin/rdma"
cp -a "$work/root/etc/libibverbs.d" "$tree/etc/"
# The driver of soft-RoCE alone: the others are megabytes that no machine of the test has.
find "$tree/etc/libibverbs.d" -type f ! -name 'rxe*' -delete
folder=usr/lib/x86_64-linux-gnu
mkdir -p "$tree/$folder/libibverbs"
cp "$work/root/$folder/libibverbs/"librxe-* "$tree/$folder/libibverbs/"
cp -L "$work/root/lib64/ld-linux-x86-64.so.2" "$tree/lib64/"
# library FILE...: what they need, from the unpacked packages.
library() {
    local name source
    while read -r name; do
        [ -e "$tree/$folder/$name" ] && continue
        source=$(find "$work/root/$folder" "$work/root/lib/x86_64-linux-gnu" -name "$name" -print -quit 2>/dev/null)
        [ -n "$source" ] || continue
        cp -L "$source" "$tree/$folder/$name"
        library "$tree/$folder/$name"
    done < <(needed_libraries "$1")
}
for file in "$tree/bin/ip" "$tree/bin/rdma" "$tree/$folder/libibverbs/"*; do library "$file"; done
cp -L "$work/root/$folder/libibverbs.so.1" "$tree/$folder/"
library "$tree/$folder/libibverbs.so.1"
# What a program of Rust needs beside the C library.
cp -L "$(find "$work/root" -name libgcc_s.so.1 -print -quit)" "$tree/$folder/"
collect_modules "$(kernel_version amd64)" "$tree/lib/modules" "$tree/etc/modules" virtio_pci virtio_net virtio_blk crc32_generic rdma_rxe ib_uverbs
install -m 755 "$IMAGES/rdma/init" "$tree/init"

mkdir -p "$target"
cp "$PAYLOAD/root/boot/vmlinuz-$(kernel_version amd64)" "$target/vmlinuz"
pack_initramfs "$tree" "$target/initrd" 3
printf '%s\n' "$wanted" >"$target/stamp"
report "$target/vmlinuz" "$target/initrd"
