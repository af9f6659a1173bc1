#!/usr/bin/env bash
# uki.sh VMLINUZ INITRD CMDLINE OUTPUT.efi [KEY CERT]: unified kernel image for UEFI HTTP Boot, with no boot loader between.
#
# systemd-boot's stub with the kernel, the initramfs and the command line as sections. With KEY and CERT (PEM; the
# passphrase of an encrypted key in $KEY_PASSPHRASE) the image is signed for Secure Boot.
# With Secure Boot on, the stub takes the built-in command line and no other.
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
[ $# -eq 4 ] || [ $# -eq 6 ] || die "usage: $0 VMLINUZ INITRD CMDLINE OUTPUT.efi [KEY CERT]"
kernel=$1 initrd=$2 cmdline=$3 output=$4 key=${5:-} cert=${6:-}
need objcopy objdump
"$IMAGES/payload.sh"

stub=$PAYLOAD/root/usr/lib/systemd/boot/efi/linuxx64.efi.stub
work=$(mktemp -d "$OUT/uki.XXXXXX")
trap 'rm -rf "$work"' EXIT
printf '%s' "$cmdline" >"$work/cmdline"
printf 'ID=rackwright\nPRETTY_NAME="Rackwright agent"\n' >"$work/osrel"

# Sections are laid out one behind the other from the end of the stub's last one, each at a page boundary.
page=4096
next=0
while read -r size address; do
    end=$((16#$size + 16#$address))
    [ "$end" -gt "$next" ] && next=$end
done < <(objdump -h "$stub" | awk '$1 ~ /^[0-9]+$/ { print $3, $4 }')
arguments=()
for section in osrel="$work/osrel" cmdline="$work/cmdline" linux="$kernel" initrd="$initrd"; do
    file=${section#*=}
    next=$(((next + page - 1) / page * page))
    arguments+=(--add-section ".${section%%=*}=$file" --change-section-vma "$(printf '.%s=0x%x' "${section%%=*}" "$next")")
    next=$((next + $(stat -c %s "$file")))
done
objcopy "${arguments[@]}" "$stub" "$work/image.efi"

if [ -n "$key" ]; then
    need sbsign openssl
    (umask 077 && openssl pkey -in "$key" ${KEY_PASSPHRASE:+-passin env:KEY_PASSPHRASE} -out "$work/key")
    sbsign --key "$work/key" --cert "$cert" --output "$work/signed.efi" "$work/image.efi" 2>"$work/log" || {
        cat "$work/log" >&2
        die "signing $output failed"
    }
    mv "$work/signed.efi" "$work/image.efi"
fi
mkdir -p "$(dirname "$output")"
mv "$work/image.efi" "$output"
report "$output"
