#!/usr/bin/env bash
# build.sh slim|cloud-init: $OUT/debian-VARIANT.raw and .raw.zst, Debian with systemd and OpenSSH, for BIOS, UEFI and
# Secure Boot (disk/assemble.sh).
#   slim        small and quick to start; name and keys come from images/seed/rackwright-seed; no name resolution
#   cloud-init  Debian's own cloud-init reads the same seed partition as NoCloud; systemd-resolved
# Nobody can log in but with the key that the seed brings. The root file system grows over free space behind it.
# KERNEL=amd64 takes the kernel for real servers in place of the one for virtual machines.
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
variant=${1:-}
case $variant in slim | cloud-init) ;; *) die "usage: $0 slim|cloud-init" ;; esac
KERNEL=${KERNEL:-cloud-amd64}
need mmdebstrap flock
"$IMAGES/payload.sh"
one_at_a_time "debian-$variant"
output=$OUT/debian-$variant.raw
wanted=$(digest "$IMAGES"/debian/* "$IMAGES"/debian/*/* "$IMAGES"/disk/* "$IMAGES"/seed/* "$IMAGES/lib.sh" "$KERNEL" "$(payload_version)")
fresh "$OUT/.debian-$variant.stamp" "$wanted" "$output" "$output.zst" && exit 0

packages=linux-image-$KERNEL,initramfs-tools,zstd,systemd-sysv,udev,e2fsprogs,openssh-server,iproute2
initramfs_modules='virtio_pci virtio_blk virtio_scsi sd_mod nvme ext4'
case $variant in cloud-init) packages+=,cloud-init,cloud-guest-utils,systemd-resolved,systemd-timesyncd,libpam-systemd,dbus,python3-minimal,ca-certificates,procps,iputils-ping ;; esac
case $KERNEL in amd64) initramfs_modules+=' ahci megaraid_sas mpt3sas' ;; esac

work=$(mktemp -d "$OUT/debian-$variant.XXXXXX")
trap 'as_root rm -rf "$work"' EXIT
chmod 755 "$work"
tree=$work/root
say "$variant: installing Debian $SUITE into a folder"
cat >"$work/initramfs" <<HOOK
set -eu
mkdir -p "\$1/etc/initramfs-tools/conf.d"
printf 'COMPRESS=zstd\nMODULES=list\n' >"\$1/etc/initramfs-tools/conf.d/rackwright"
printf '%s\n' $initramfs_modules >"\$1/etc/initramfs-tools/modules"
HOOK
as_root mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
    --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --essential-hook="sh '$work/initramfs' \"\$1\"" \
    "$SUITE" "$tree" ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1 || {
    tail -n 30 "$work/log" >&2
    die "mmdebstrap failed"
}
uuid=$(sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-4\3-8\4-\5/' <<<"$wanted")
as_root "$IMAGES/debian/setup.sh" "$tree" "$variant" "$uuid"
"$IMAGES/disk/assemble.sh" "$tree" "$output" "$uuid" 64 'console=tty0 console=ttyS0,115200 quiet net.ifnames=0'
printf '%s\n' "$wanted" >"$OUT/.debian-$variant.stamp"
