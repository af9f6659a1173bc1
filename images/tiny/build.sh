#!/usr/bin/env bash
# build.sh: $OUT/tiny.raw and tiny.raw.zst, TinyOS: Debian's cloud kernel, busybox and dropbear on a real disk with a
# real boot loader. Up in a few seconds also on an emulated processor; for tests and demonstrations.
# Nobody can log in but with the key that the seed brings (see images/seed/rackwright-seed).
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need modprobe cpio zstd objdump flock
"$IMAGES/payload.sh"
one_at_a_time tiny
output=$OUT/tiny.raw
wanted=$(digest "$IMAGES"/tiny/* "$IMAGES"/disk/* "$IMAGES"/seed/* "$IMAGES/ramdisk/modules.cloud" "$IMAGES/lib.sh" "$(payload_version)")
fresh "$OUT/.tiny.stamp" "$wanted" "$output" "$output.zst" && exit 0

kver=$(kernel_version cloud-amd64)
work=$(mktemp -d "$OUT/tiny.XXXXXX")
trap 'as_root rm -rf "$work"' EXIT
busybox=$PAYLOAD/root/bin/busybox

# busybox_tree ROOT: the busybox and a link for each of its programs that ROOT does not have as a program of its own.
busybox_tree() {
    local program
    install -D -m 755 "$busybox" "$1/bin/busybox"
    mkdir -p "$1/sbin"
    while read -r program; do
        [ -e "$1/bin/$program" ] || ln -s busybox "$1/bin/$program"
    done < <("$busybox" --list)
}

tree=$work/root
mkdir -p "$tree"/{boot,dev,etc/dropbear,etc/rackwright,proc,root,run,sys,tmp,usr/bin,usr/sbin,var/lib,var/log}
for program in usr/sbin/dropbear usr/bin/dropbearkey usr/bin/dropbearconvert; do
    copy_program "$tree" "$program"
done
# busybox's date knows no fractions of a second, and clocks are compared more finely than that; its shell would take
# its own date all the same, so the shell is dash.
copy_program "$tree" bin/date
copy_program "$tree" bin/dash
ln -s dash "$tree/bin/sh"
busybox_tree "$tree"
ln -s ../bin/busybox "$tree/sbin/init"
install -m 755 "$IMAGES/seed/rackwright-seed" "$tree/usr/sbin/rackwright-seed"
install -m 755 "$IMAGES/tiny/rc" "$tree/etc/rc"
install -D -m 755 "$IMAGES/tiny/udhcpc.script" "$tree/usr/share/udhcpc/default.script"
mapfile -t modules < <(module_names "$IMAGES/ramdisk/modules.cloud")
collect_modules "$kver" "$tree/lib/modules" "$tree/etc/modules" "${modules[@]}" vfat nls_cp437 nls_ascii

cd "$tree/etc"
printf 'NAME=TinyOS\nID=tinyos\nVERSION_ID=1\nPRETTY_NAME="TinyOS 1"\n' >os-release
printf '::sysinit:/etc/rc\n::ctrlaltdel:/bin/reboot\n::shutdown:/bin/umount -a -r\n' >inittab
printf 'root:x:0:0:root:/root:/bin/sh\n' >passwd
printf 'root:*:19000:0:99999:7:::\n' >shadow
printf 'root:x:0:\n' >group
printf '/bin/sh\n' >shells
printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n' >nsswitch.conf
printf '127.0.0.1 localhost\n::1 localhost\n' >hosts
printf 'tinyos\n' >hostname
chmod 600 shadow
cd "$OUT"
chmod 700 "$tree/root"
chmod 1777 "$tree/tmp"

initrd=$work/initrd
mkdir -p "$initrd"/{dev,etc,mnt,proc,sys}
busybox_tree "$initrd"
install -m 755 "$IMAGES/tiny/initrd-init" "$initrd/init"
collect_modules "$kver" "$initrd/lib/modules" "$initrd/etc/modules" virtio_pci virtio_blk virtio_scsi sd_mod nvme ext4 crc32c_generic
pack_initramfs "$initrd" "$tree/boot/initrd.img" 19
cp "$PAYLOAD/root/boot/vmlinuz-$kver" "$tree/boot/vmlinuz"

uuid=$(sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-4\3-8\4-\5/' <<<"$wanted")
as_root chown -R 0:0 "$tree"
"$IMAGES/disk/assemble.sh" "$tree" "$output" "$uuid" 16 'console=ttyS0,115200 quiet net.ifnames=0'
printf '%s\n' "$wanted" >"$OUT/.tiny.stamp"
