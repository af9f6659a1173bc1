#!/usr/bin/env bash
# assemble.sh ROOT_TREE OUTPUT.raw UUID SPARE_MIB CMDLINE: a disk image from a root tree, without loop devices and mounts.
#
# The image boots by BIOS, by UEFI and by UEFI with Secure Boot:
#   1  bios  1 MiB    GRUB's core image, read by the boot sector
#   2  esp   33 MiB   FAT: Debian's signed shim and GRUB at the fall-back path EFI/BOOT
#   3  root           ext4, the last one, so that it can grow; SPARE_MIB bigger than its content
# ROOT_TREE has /boot/vmlinuz and /boot/initrd.img (files, or links as Debian's kernel packages keep them).
# UUID names the root file system and must differ between images, or GRUB may start the system of another disk.
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
[ $# -eq 5 ] || die "usage: $0 ROOT_TREE OUTPUT.raw UUID SPARE_MIB CMDLINE"
tree=$1 output=$2 uuid=$3 spare_mib=$4 cmdline=$5
need sfdisk mkfs.ext4 mkfs.vfat mmd mcopy zstd
boot=$PAYLOAD/root
work=$(mktemp -d "$OUT/assemble.XXXXXX")
trap 'rm -rf "$work"' EXIT

sed -e '/^#/d' -e "s|@UUID@|$uuid|; s|@CMDLINE@|$cmdline|; s|@UUID@|$uuid|" "$IMAGES/disk/grub.cfg" >"$work/grub.cfg"
as_root install -D -m 644 "$work/grub.cfg" "$tree/boot/grub/grub.cfg"

# Sizes in MiB. ext4's own tables take about 3 % and its journal journal_mib.
journal_mib=8
bios_mib=1 esp_mib=33
content_mib=$(as_root du -sm --apparent-size "$tree" | cut -f1)
root_mib=$((content_mib + content_mib / 16 + journal_mib + 4 + spare_mib))
root_start=$((1 + bios_mib + esp_mib))
total_mib=$((root_start + root_mib + 1))

truncate -s "${total_mib}M" "$work/disk"
sfdisk -q "$work/disk" <<TABLE
label: gpt
start=1MiB, size=${bios_mib}MiB, type=21686148-6449-6E6F-744E-656564454649, name=bios
size=${esp_mib}MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
size=${root_mib}MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
TABLE

# Features by name, none by default: GRUB 2.06 reads all of these, and older e2fsprogs know them.
truncate -s "${root_mib}M" "$work/root"
as_root mkfs.ext4 -q -F -U "$uuid" -L root -b 4096 -m 1 -J "size=$journal_mib" -E lazy_itable_init=0,lazy_journal_init=0 \
    -O none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum \
    -d "$tree" "$work/root"

truncate -s "${esp_mib}M" "$work/esp"
mkfs.vfat -F 16 -n ESP "$work/esp" >/dev/null
mmd -i "$work/esp" ::EFI ::EFI/BOOT ::EFI/debian
mcopy -i "$work/esp" "$boot/usr/lib/shim/shimx64.efi.signed" ::EFI/BOOT/BOOTX64.EFI
mcopy -i "$work/esp" "$boot/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" ::EFI/BOOT/grubx64.efi
# Debian's signed GRUB reads its configuration from here and nowhere else.
mcopy -i "$work/esp" "$work/grub.cfg" ::EFI/debian/grub.cfg

# BIOS without grub-install. The core image starts with diskboot.img, which loads the rest by a block list.
modules=$boot/usr/lib/grub/i386-pc
# shellcheck disable=SC2016 # $root is GRUB's
printf 'search --no-floppy --set=root --fs-uuid %s\nset prefix=($root)/boot/grub\nconfigfile /boot/grub/grub.cfg\n' "$uuid" >"$work/early.cfg"
with_payload_libraries usr/bin/grub-mkimage -d "$modules" -O i386-pc -c "$work/early.cfg" -p /boot/grub -o "$work/core" \
    biosdisk part_gpt ext2 search search_fs_uuid configfile normal linux echo serial terminal test boot
cp "$modules/boot.img" "$work/boot"

# put_le FILE OFFSET BYTES VALUE: an unsigned little-endian number.
put_le() {
    local bytes='' value=$4 i
    for ((i = 0; i < $3; i++)); do
        bytes+=$(printf '\\x%02x' $((value & 255)))
        value=$((value >> 8))
    done
    printf '%b' "$bytes" | dd of="$1" bs=1 seek=$(($2)) conv=notrunc status=none
}
# Offsets from GRUB's include/grub/i386/pc/boot.h: kernel sector 0x5c, drive check 0x66 (two nops, as
# grub-bios-setup does for a hard disk); block list at the end of the first core sector: start, length, segment.
core_lba=2048
core_sectors=$((($(stat -c %s "$work/core") + 511) / 512))
[ "$core_sectors" -le $((bios_mib * 2048)) ] || die "GRUB's core image of $core_sectors sectors does not fit its partition"
put_le "$work/boot" 0x5c 8 "$core_lba"
put_le "$work/boot" 0x66 2 $((0x9090))
put_le "$work/core" 0x1f4 8 $((core_lba + 1))
put_le "$work/core" 0x1fc 2 $((core_sectors - 1))
put_le "$work/core" 0x1fe 2 $((0x820))

# Only the code part of the boot sector: disk signature and partition table behind it stay.
dd if="$work/boot" of="$work/disk" bs=1 count=$((0x1b8)) conv=notrunc status=none
dd if="$work/core" of="$work/disk" bs=512 seek="$core_lba" conv=notrunc status=none
dd if="$work/esp" of="$work/disk" bs=1M seek=$((1 + bios_mib)) conv=notrunc,sparse status=none
dd if="$work/root" of="$work/disk" bs=1M seek="$root_start" conv=notrunc,sparse status=none

zstd -q -f -T2 -9 "$work/disk" -o "$work/disk.zst"
mkdir -p "$(dirname "$output")"
mv "$work/disk" "$output"
mv "$work/disk.zst" "$output.zst"
for file in "$output" "$output.zst"; do
    (cd "$(dirname "$file")" && sha256sum "${file##*/}" >"${file##*/}.sha256")
done
report "$output" "$output.zst"
