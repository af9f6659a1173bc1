#!/usr/bin/env bash
# deps.sh [--list]: installs what building, testing and the lab need from Debian's (or Ubuntu's) own packages.
#
# Prints each missing package and what it is for, then installs them in one go; asks nothing; does nothing when all are there.
# --list prints the packages and their purpose and installs nothing.
# Programs that only end up inside images (kernels, boot loaders, dropbear) are not installed here: see payload.sh.
set -euo pipefail

# package | what it is for
PACKAGES='
gcc                    | linker of every Rust program, compiler of the bundled SQLite and zstd
g++                    | the fuzzer: libFuzzer is C++
libc6-dev              | C library headers for the same, and its static form for the ramdisk agent
libssl-dev             | the BMC client with TLS by OpenSSL (feature platform-tls), and its tests
pkg-config             | finds OpenSSL for the same
make                   | this Makefile
mmdebstrap             | Debian root trees for the images
debian-archive-keyring | checks the signatures of the Debian packages that go into images
mtools                 | fills FAT file systems without mounting them
dosfstools             | makes FAT file systems
fdisk                  | sfdisk: partition tables of the images
e2fsprogs              | makes ext4 file systems from a folder
kmod                   | finds the dependencies of kernel modules
cpio                   | packs the ramdisk
zstd                   | compresses the ramdisk and the images
xz-utils               | unpacks packages, and a test image in this format
binutils               | objcopy: unified kernel images
qemu-system-x86        | the lab: machines
qemu-utils             | the lab: qcow2 images; bench-image: qemu-img
ovmf                   | the lab: UEFI firmware
ipxe-qemu              | the lab: boot ROMs of the network cards
iproute2               | the lab: bridge and taps in a network namespace
util-linux             | the lab: unshare, flock
swtpm                  | the lab: TPMs
openssh-client         | image self test: ssh, ssh-keygen
openssh-server         | tests: an SSH server to validate (the tests start it on the loopback address; as a service it stays off)
dropbear-bin           | tests: another SSH server, and its key converter
sqlite3                | tests: an attacker with write access to the database file
postgresql             | tests: the database of sites with several replicas (every test starts a server of its own; as a service it stays off)
dnsmasq-base           | image self test: a DHCP server that is not ours
shellcheck             | lint of the shell scripts
sbsigntool             | Secure Boot: signs unified kernel images for the test firmware
openssl                | Secure Boot: reads the test key; tests: a TLS handshake by a client that is not ours
curl                   | bench-image: one of the tools that ours is compared with
bmap-tools             | bench-image: one of the tools that ours is compared with
prometheus             | tests: reads the metrics, and judges the alerts (the tests start it; as a service it stays off)
nginx-light            | tests: a caching proxy between agents and the image store (the tests start it; as a service it stays off)
systemd                | tests: systemd-analyze verifies the unit in deploy/ (the package is in every Debian that boots by it)
minisign               | tests: signs images as the sites that trust a key do
opensm                 | tests: a subnet manager (the tests start it on a played fabric; as a service it stays off)
ibsim-utils            | tests: plays InfiniBand fabrics for OpenSM and the tools
libumad2sim0           | tests: turns OpenSM and the tools to the played fabric
infiniband-diags       | tests: ibnetdiscover, smpquery, sminfo, ibqueryerrors
slurmctld              | tests: reads the topology of a hand-over pack (the tests start it; as a service it stays off)
slurm-client           | tests: scontrol, which asks it what it has read
python3-venv           | tests: runs Redfish programs of other projects: an emulator (sushy-tools), validators (DMTF), a client (sushy)
python3-libvirt        | tests: the test driver of libvirt and its module for Python, behind that emulator
ipmitool               | BMCs at ipmi:// (also on the machines of a control plane that has such), and their tests
openvswitch-switch     | tests: a real Ethernet switch (the tests start it in namespaces of their own; as a service it stays off)
openipmi               | tests: ipmi_sim, a BMC that speaks IPMI only (the tests start it; as a service it stays off)
'

rows() { sed '/^$/d; s/ *| */|/' <<<"$PACKAGES"; }
say() { printf 'deps: %s\n' "$*" >&2; }
installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if [ "${1:-}" = --list ]; then
    rows | awk -F'|' '{ printf "%-24s %s\n", $1, $2 }'
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "error: no apt-get here. Install by hand what 'images/deps.sh --list' names, under the names of your distribution."
    exit 1
fi

# The packages that are not here, into `missing`.
missing=()
absent() {
    missing=()
    local package
    while IFS='|' read -r package _; do
        installed "$package" || missing+=("$package")
    done < <(rows)
}

absent
while IFS='|' read -r package purpose; do
    case " ${missing[*]} " in *" $package "*) say "missing: $package ($purpose)" ;; esac
done < <(rows)
if [ ${#missing[@]} -eq 0 ]; then
    say "everything is there"
    exit 0
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
    root=(sudo --)
    if ! command -v sudo >/dev/null; then
        say "error: not root and no sudo. As root, run: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
        exit 1
    fi
fi
say "installing ${#missing[@]} packages"
# What is installed here for its programs must not start to listen on this computer: in runlevel 1 no service is started,
# and one that was not there before is not started at the next boot either.
services=()
case " ${missing[*]} " in *' openssh-server '*) services+=(ssh.service ssh.socket) ;; esac
case " ${missing[*]} " in *' nginx-light '*) services+=(nginx.service) ;; esac
case " ${missing[*]} " in *' prometheus '*) services+=(prometheus.service) ;; esac
case " ${missing[*]} " in *' opensm '*) services+=(opensm.service) ;; esac
case " ${missing[*]} " in *' openipmi '*) services+=(openipmi.service) ;; esac
case " ${missing[*]} " in *' openvswitch-switch '*) services+=(openvswitch-switch.service) ;; esac
case " ${missing[*]} " in *' postgresql '*) services+=(postgresql.service) ;; esac
case " ${missing[*]} " in *' slurmctld '*) services+=(slurmctld.service); installed munge || services+=(munge.service) ;; esac
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3)
"${apt[@]}" update || say "warning: the package lists could not all be refreshed; going on with those that are here"
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
# A package that was here in a version of another origin (backports) may have had to give way; its own distribution has it, too.
absent
if [ ${#missing[@]} -gt 0 ]; then
    say "gave way to the others, and installed once more: ${missing[*]}"
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
fi
for service in "${services[@]}"; do
    if command -v systemctl >/dev/null && systemctl -q is-enabled "$service" 2>/dev/null; then
        "${root[@]}" systemctl -q disable --now "$service" 2>/dev/null || "${root[@]}" systemctl -q disable "$service"
    fi
done
absent
if [ ${#missing[@]} -gt 0 ]; then
    say "error: still not installed: ${missing[*]}"
    exit 1
fi
say "done"
