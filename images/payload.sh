#!/usr/bin/env bash
# payload.sh: downloads the Debian packages whose files go into images, the ramdisk and the boot server, and unpacks
# them (dpkg -x) into $OUT/payload/root. Nothing is installed on this machine.
#
# mmdebstrap supplies a private apt for $SUITE, so that the host may be any Debian or Ubuntu; Debian's archive key is checked.
# Writes $OUT/payload/versions (one NAME VERSION a line). Runs once; UPDATE=1 asks for newer packages.
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need mmdebstrap dpkg dpkg-deb depmod flock

# Kernels (the packages that these two depend on), boot loaders, firmware that boots over the network, and the
# programs and libraries of TinyOS. grub-common and its libraries run here, to make the boot sector image.
KERNELS='linux-image-amd64 linux-image-cloud-amd64'
PACKAGES='ipxe shim-signed grub-efi-amd64-signed grub-pc-bin grub-common systemd-boot-efi
    busybox-static dropbear-bin coreutils dash
    libc6 libcrypt1 libtomcrypt1 libtommath1 libgmp10 zlib1g libselinux1 libpcre2-8-0
    libdevmapper1.02.1 libudev1 liblzma5'

one_at_a_time payload
wanted=$(digest "$IMAGES/payload.sh" "$SUITE" "$MIRROR")
if [ "${UPDATE:-0}" != 1 ] && fresh "$PAYLOAD/stamp" "$wanted" "$PAYLOAD/versions" "$PAYLOAD/root"; then
    exit 0
fi

say "downloading Debian packages for the images ($SUITE)"
work=$(mktemp -d "$OUT/payload.XXXXXX")
trap 'as_root rm -rf "$work"' EXIT
mkdir "$work/debs" "$work/root"
cat >"$work/download" <<HOOK
set -eu
export APT_CONFIG="\$MMDEBSTRAP_APT_CONFIG"
kernels=\$(apt-cache depends $KERNELS | awk '/Depends: linux-image-/ { print \$2 }')
cd "$work/debs"
apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=3 download \$kernels $(tr -s ' \n' ' ' <<<"$PACKAGES")
HOOK
as_root mmdebstrap --quiet --mode=root --variant=custom --format=null \
    --customize-hook="sh '$work/download'" "$SUITE" - ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    die "the packages could not be downloaded"
}

for deb in "$work"/debs/*.deb; do
    dpkg-deb -f "$deb" Package Version | awk '{ printf "%s%s", $2, NR % 2 ? " " : "\n" }'
done | sort >"$work/versions"

# The kernels are big and most of them is never used: leave out what no image takes.
for deb in "$work"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --no-same-owner \
        --exclude='./usr/share/doc*' --exclude='./usr/share/man*' --exclude='./usr/share/locale*' \
        --exclude='*/kernel/sound/*' --exclude='*/drivers/media/*' --exclude='*/drivers/gpu/*' \
        --exclude='*/drivers/staging/*' --exclude='*/net/wireless/*'
done
for modules in "$work"/root/lib/modules/*; do
    depmod -b "$work/root" "${modules##*/}"
done

as_root rm -rf "$PAYLOAD"
mkdir "$PAYLOAD"
mv "$work/root" "$work/versions" "$PAYLOAD/"
printf '%s\n' "$wanted" >"$PAYLOAD/stamp"
say "$(wc -l <"$PAYLOAD/versions") packages in ${PAYLOAD#"$REPO/"}, kernels $(kernel_version amd64) and $(kernel_version cloud-amd64)"
