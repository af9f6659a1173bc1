#!/usr/bin/env bash
# build.sh: the boot programs that Rackwright hands to firmware, from Debian's packages, in $OUT/netboot:
#   ipxe.efi snponly.efi   UEFI: iPXE with its own drivers, and with those of the firmware
#   undionly.kpxe          BIOS
#   shimx64.efi grubx64.efi  Secure Boot: signed by Microsoft and by Debian; grub reads grub/grub.cfg by TFTP
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
"$IMAGES/payload.sh"
target=$OUT/netboot
one_at_a_time netboot
wanted=$(digest "$IMAGES/netboot/build.sh" "$(payload_version)")
fresh "$target/stamp" "$wanted" "$target"/{ipxe.efi,snponly.efi,undionly.kpxe,shimx64.efi,grubx64.efi} && exit 0

mkdir -p "$target"
root=$PAYLOAD/root
install -m 644 "$root/boot/ipxe.efi" "$target/ipxe.efi"
install -m 644 "$root/usr/lib/ipxe/snponly.efi" "$root/usr/lib/ipxe/undionly.kpxe" "$target/"
install -m 644 "$root/usr/lib/shim/shimx64.efi.signed" "$target/shimx64.efi"
install -m 644 "$root/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed" "$target/grubx64.efi"
printf '%s\n' "$wanted" >"$target/stamp"
report "$target"/{ipxe.efi,snponly.efi,undionly.kpxe,shimx64.efi,grubx64.efi}
