#!/usr/bin/env bash
# setup.sh ROOT_TREE slim|cloud-init UUID: makes an image of the root tree that mmdebstrap left. Runs as root.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$1 variant=$2 uuid=$3

put() { install -D -m "${3:-644}" "$here/$1" "$tree/$2"; }
unit() { chroot "$tree" systemctl -q "$@"; }

echo debian >"$tree/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >"$tree/etc/hosts"
# x-systemd.growfs: the file system follows the partition that systemd-repart has grown.
printf 'UUID=%s / ext4 defaults,noatime,x-systemd.growfs 0 0\n' "$uuid" >"$tree/etc/fstab"
put common/90-dhcp.network etc/systemd/network/90-dhcp.network
put common/50-root.conf etc/repart.d/50-root.conf
put common/sshd.conf etc/ssh/sshd_config.d/10-rackwright.conf
# Keys that the package made while it was installed would be the same on every machine.
rm -f "$tree"/etc/ssh/ssh_host_*
: >"$tree/etc/machine-id"
rm -f "$tree/var/lib/dbus/machine-id" "$tree/var/lib/systemd/random-seed"
# The boot loader takes the kernel by these links; Debian's kernel packages keep them on the newest one.
for kind in vmlinuz initrd.img; do
    newest=$(cd "$tree/boot" && printf '%s\n' "$kind"-* | sort -V | tail -n 1)
    ln -sfn "$newest" "$tree/boot/$kind"
done
printf 'do_symlinks = yes\nimage_dest = /boot\n' >"$tree/etc/kernel-img.conf"
unit enable systemd-networkd ssh
unit mask apt-daily.timer apt-daily-upgrade.timer e2scrub_reap.service systemd-networkd-wait-online.service
unit set-default multi-user.target

slim() {
    put ../seed/rackwright-seed usr/sbin/rackwright-seed 755
    put slim/rackwright-seed.service etc/systemd/system/rackwright-seed.service
    unit enable rackwright-seed
    # About half of systemd's start-up time on an emulated processor goes into what nobody uses here.
    unit mask getty-static.service getty@tty1.service serial-getty@ttyS0.service dev-hugepages.mount dev-mqueue.mount \
        sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
        modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service \
        modprobe@dm_mod.service modprobe@loop.service kmod-static-nodes.service systemd-update-utmp.service \
        systemd-update-utmp-runlevel.service systemd-pstore.service systemd-journal-flush.service \
        systemd-modules-load.service systemd-sysusers.service systemd-binfmt.service systemd-boot-system-token.service \
        systemd-logind.service systemd-timesyncd.service fstrim.timer dpkg-db-backup.timer e2scrub_all.timer \
        systemd-tmpfiles-clean.timer
    mkdir -p "$tree/etc/systemd/journald.conf.d"
    printf '[Journal]\nStorage=volatile\nAudit=no\n' >"$tree/etc/systemd/journald.conf.d/10-rackwright.conf"
    # Without PAM a login waits for no session manager.
    printf 'UsePAM no\n' >>"$tree/etc/ssh/sshd_config.d/10-rackwright.conf"
}

cloud_init() {
    put cloud-init/99_rackwright.cfg etc/cloud/cloud.cfg.d/99_rackwright.cfg
    put cloud-init/ssh-host-key.conf etc/systemd/system/ssh.service.d/host-key.conf
    unit enable systemd-resolved
}

case $variant in
slim) slim ;;
cloud-init) cloud_init ;;
esac
