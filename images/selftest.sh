#!/usr/bin/env bash
# selftest.sh [IMAGE[:FIRMWARE[:SEED[:DRIVE]]]]...: starts images in QEMU, in a network namespace of its own, and logs in to them.
#
#   IMAGE     tiny, debian-slim, debian-cloud-init
#   FIRMWARE  bios, uefi, secureboot                      (default: uefi)
#   SEED      seed, none                                  (default: seed)
#   DRIVE     virtio, nvme                                (default: virtio)
# Without arguments: every image under BIOS and UEFI, one under Secure Boot, and each without a seed.
#
# With a seed: logs in with the seed's key to exactly the seed's host key, checks what the seed promises, that the root
# file system has grown up to the seed partition, and that a restart changes nothing. Without: nobody is let in.
# Prints one line per machine: seconds from power-on to the first command over SSH. TIMEOUT_S bounds each wait (default 300).
set -euo pipefail
# shellcheck source=images/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
TIMEOUT_S=${TIMEOUT_S:-300}
need qemu-system-x86_64 dnsmasq ip ssh ssh-keygen sfdisk mkfs.vfat mcopy unshare

if [ "${1:-}" != --inside ]; then
    user=()
    [ "$(id -u)" -eq 0 ] || user=(--user --map-root-user)
    exec unshare "${user[@]}" --net --pid --fork --kill-child --mount --mount-proc "$0" --inside "$@"
fi
shift
cases=("$@")
if [ ${#cases[@]} -eq 0 ]; then
    cases=(tiny:bios tiny:uefi tiny:uefi:seed:nvme tiny:uefi:none
        debian-slim:bios debian-slim:secureboot debian-slim:bios:seed:nvme debian-slim:uefi:none
        debian-cloud-init:bios debian-cloud-init:uefi debian-cloud-init:uefi:none)
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/rackwright-selftest.XXXXXX")
trap 'rm -rf "$work"' EXIT
host=198.18.7.1 guest=198.18.7.10
ip link set lo up
ip tuntap add dev tap0 mode tap
ip address add "$host/24" dev tap0
ip link set tap0 up
# As a daemon it would change its group, of which there is only one in the namespace of an ordinary user.
dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=tap0 --bind-interfaces --no-ping --leasefile-ro \
    --dhcp-range="$guest,$guest,1h" --dhcp-authoritative --dhcp-ignore-clid --pid-file="$work/dnsmasq.pid" 2>"$work/dnsmasq.log" &

ssh-keygen -q -t ed25519 -N '' -C operator -f "$work/user"
ssh-keygen -q -t ed25519 -N '' -C host -f "$work/host"
printf '%s %s\n' "$guest" "$(cut -d' ' -f1,2 "$work/host.pub")" >"$work/known_hosts"
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
remote() {
    ssh -n -F none -i "$work/user" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=5 -o ServerAliveCountMax=2 -o LogLevel=ERROR \
        -o StrictHostKeyChecking=yes -o UserKnownHostsFile="$work/known_hosts" "root@$guest" "$@"
}

# write_seed FILE: a FAT file system as the agent writes it, with NoCloud's files and the plain ones.
write_seed() {
    local seed=$work/seed
    mkdir -p "$seed/rackwright"
    cp "$work/host" "$seed/rackwright/ssh_host_ed25519_key"
    cp "$work/host.pub" "$seed/rackwright/ssh_host_ed25519_key.pub"
    cp "$work/user.pub" "$seed/rackwright/authorized_keys"
    printf 'node-7\n' >"$seed/rackwright/hostname"
    printf 'node-7-gen-1\n' >"$seed/rackwright/instance-id"
    printf 'digest=b3-%064d\ngeneration=1\n' 7 >"$seed/rackwright/image"
    printf 'instance-id: node-7-gen-1\nlocal-hostname: node-7\npublic-keys:\n  - %s\n' "$(cat "$work/user.pub")" >"$seed/meta-data"
    printf 'version: 2\nethernets:\n  all:\n    match: {name: "e*"}\n    dhcp4: true\n    dhcp-identifier: mac\n' >"$seed/network-config"
    {
        printf '#cloud-config\nhostname: node-7\ndisable_root: false\nssh_deletekeys: true\n'
        printf 'ssh_authorized_keys:\n  - %s\n' "$(cat "$work/user.pub")"
        printf 'ssh_keys:\n  ed25519_private: |\n'
        sed 's/^/    /' "$work/host"
        printf '  ed25519_public: %s\n' "$(cat "$work/host.pub")"
        printf 'write_files:\n  - path: /etc/rackwright/image\n    content: |\n'
        sed 's/^/      /' "$seed/rackwright/image"
    } >"$seed/user-data"
    truncate -s 8M "$1"
    mkfs.vfat -n CIDATA "$1" >/dev/null
    mcopy -s -i "$1" "$seed"/* ::
}

# make_disk IMAGE SEED: a copy of the image, 512 MiB bigger, with the seed at its end.
make_disk() {
    local disk=$work/disk start sectors
    cp --sparse=always "$OUT/$1.raw" "$disk"
    truncate -s +512M "$disk"
    sfdisk -q --relocate gpt-bak-std "$disk" >/dev/null 2>&1
    [ "$2" = seed ] || return 0
    write_seed "$work/seed.fat"
    sectors=$(($(stat -c %s "$disk") / 512))
    start=$(((sectors - 33) / 2048 * 2048 - 16384))
    printf 'start=%d, size=16384, type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7, name=CIDATA\n' "$start" | sfdisk -q --append "$disk" >/dev/null
    dd if="$work/seed.fat" of="$disk" bs=512 seek="$start" conv=notrunc status=none
}

# ovmf NAME: path of a firmware file, wherever the distribution puts it.
ovmf() {
    local folder
    for folder in /usr/share/OVMF /usr/share/ovmf /usr/share/edk2/x64; do
        if [ -f "$folder/$1" ]; then
            printf '%s\n' "$folder/$1"
            return
        fi
    done
    die "no $1 on this machine; 'make deps' installs it (package ovmf)"
}

# shellcheck disable=SC2054 # QEMU's commas
start_machine() {
    local firmware=$1 drive=$2 flags=()
    case $firmware in
    bios) flags=(-machine q35) ;;
    uefi)
        cp "$(ovmf OVMF_VARS_4M.fd)" "$work/vars"
        flags=(-machine q35 -drive "if=pflash,format=raw,readonly=on,file=$(ovmf OVMF_CODE_4M.fd)")
        ;;
    secureboot)
        cp "$(ovmf OVMF_VARS_4M.ms.fd)" "$work/vars"
        flags=(-machine q35,smm=on -global driver=cfi.pflash01,property=secure,value=on
            -drive "if=pflash,format=raw,readonly=on,file=$(ovmf OVMF_CODE_4M.secboot.fd)")
        ;;
    *) die "unknown firmware '$firmware'" ;;
    esac
    [ "$firmware" = bios ] || flags+=(-drive "if=pflash,format=raw,file=$work/vars")
    case $drive in
    virtio) flags+=(-device virtio-blk-pci,drive=d0) ;;
    nvme) flags+=(-device nvme,drive=d0,serial=selftest) ;;
    *) die "unknown drive '$drive'" ;;
    esac
    : >"$work/console"
    qemu-system-x86_64 "${flags[@]}" -accel tcg,thread=multi,tb-size=64 -cpu qemu64 -m 512 -display none -vga std \
        -D "$work/qemu.log" -serial "file:$work/console" -device virtio-rng-pci -drive "file=$work/disk,format=raw,if=none,id=d0,cache=unsafe" \
        -netdev tap,id=n0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n0,romfile= &
    machine=$!
}

stop_machine() {
    kill "$machine" 2>/dev/null || true
    wait "$machine" 2>/dev/null || true
}

# await WHAT COMMAND...: repeats the command until it succeeds; the console is shown when it does not in time.
await() {
    local what=$1 began
    began=$(date +%s)
    shift
    until "$@" >"$work/output" 2>"$work/errors"; do
        if ! kill -0 "$machine" 2>/dev/null || [ $(($(date +%s) - began)) -gt "$TIMEOUT_S" ]; then
            tail -n 40 "$work/console" "$work/errors" "$work/dnsmasq.log" >&2
            die "$name: $what: not within $TIMEOUT_S s"
        fi
        sleep 0.2
    done
}

expect() {
    local what=$1 wanted=$2 got
    shift 2
    got=$(remote "$@") || true
    [ "$got" = "$wanted" ] || {
        tail -n 20 "$work/console" >&2
        die "$name: $what: expected '$wanted', found '$got'"
    }
}

check_seeded() {
    local boot image=$1 os root_mib
    case $image in tiny) os=tinyos ;; *) os=debian ;; esac
    # shellcheck disable=SC2016 # the machine expands it
    expect 'os-release' "$os" '. /etc/os-release; echo $ID'
    expect hostname node-7 'cat /proc/sys/kernel/hostname'
    expect 'image marker' "$(cat "$work/seed/rackwright/image")" 'cat /etc/rackwright/image'
    expect 'authorized keys' "$(cat "$work/user.pub")" 'cat /root/.ssh/authorized_keys'
    expect 'number of host keys' 1 'ls /etc/ssh/ssh_host_*_key /etc/dropbear/*_host_key 2>/dev/null | wc -l'
    expect 'accounts with a password' '' "awk -F: '\$2 !~ /^[*!]/ { print \$1 }' /etc/shadow"
    # shellcheck disable=SC2016 # the machine expands it
    expect 'direct read' ok 'for d in /dev/vda /dev/nvme0n1; do [ -b $d ] && break; done; dd if=$d of=/dev/null bs=1M count=4 iflag=direct 2>/dev/null && echo ok'
    expect 'date with fractions' ok "case \$(date +%s.%N) in *.[0-9]*) echo ok;; esac"
    if [ "$image" != tiny ]; then
        await 'systemd is up and not degraded' running_system
        root_mib=$(remote 'df -BM --output=size / | tail -n 1 | tr -dc 0-9')
        [ "$root_mib" -gt "$(($(stat -c %s "$OUT/$image.raw") / 1048576 + 350))" ] || die "$name: the root file system has $root_mib MiB: it did not grow"
    fi
    boot=$(remote cat /proc/sys/kernel/random/boot_id)
    remote 'sync; (sleep 0.5; reboot) >/dev/null 2>&1 &' || true
    await 'back after a restart' rebooted "$boot"
    expect 'authorized keys after a restart' "$(cat "$work/user.pub")" 'cat /root/.ssh/authorized_keys'
}

# True when systemd has started everything; a failed unit ends the wait at once.
running_system() {
    local state
    state=$(remote 'systemctl is-system-running' || true)
    [ "$state" != degraded ] || die "$name: degraded: $(remote 'systemctl --failed --no-legend --plain; systemctl status --no-pager --failed')"
    [ "$state" = running ]
}

rebooted() {
    local id
    id=$(remote cat /proc/sys/kernel/random/boot_id) && [ "$id" != "$1" ]
}

# Without a seed sshd answers with a host key of its own and lets nobody in.
refused() {
    ! ssh -n -F none -i "$work/user" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null "root@$guest" true 2>"$work/refusal" && grep -q 'Permission denied' "$work/refusal"
}

for one in "${cases[@]}"; do
    IFS=: read -r image firmware seed drive <<<"$one"
    firmware=${firmware:-uefi} seed=${seed:-seed} drive=${drive:-virtio}
    name=$image:$firmware:$seed:$drive
    [ -f "$OUT/$image.raw" ] || die "no $OUT/$image.raw; 'make images' builds it"
    make_disk "$image" "$seed"
    began=$(now)
    start_machine "$firmware" "$drive"
    if [ "$seed" = seed ]; then
        await 'first command over SSH' remote true
        printf '%-40s first command over SSH after %6s s\n' "$name" "$(since "$began")"
        check_seeded "$image"
    else
        await 'sshd up' refused
        printf '%-40s logins refused, as expected  %6s s\n' "$name" "$(since "$began")"
    fi
    stop_machine
done
printf '%d machines, all as expected\n' "${#cases[@]}"
