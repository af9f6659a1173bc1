#!/usr/bin/env bash
# deps.sh [--list] [GROUP...]: installs what is missing of Debian's (or Ubuntu's) own packages.
#
# GROUP: build, images, lab, fabric, bench, test; all of them when none is named. `make demo` needs build, images and lab.
# Prints each missing package and what it is for, then installs them in one go; asks nothing; does nothing when all are there.
# No package is removed. One that is here in a version of another origin, and stands in the way, is set back to the version of
# this distribution, and a line says so before.
# --list prints the packages, their groups and their purpose, and installs nothing.
# Programs that only end up inside images (kernels, boot loaders, dropbear) are not installed here: see payload.sh.
set -euo pipefail

# package | groups | what it is for
PACKAGES='
gcc                    | build      | linker of every Rust program, compiler of the bundled SQLite and zstd
libc6-dev              | build      | C library headers for the same, and its static form for the ramdisk agent
make                   | build      | this Makefile
mmdebstrap             | images     | Debian root trees for the images
debian-archive-keyring | images     | checks the signatures of the Debian packages that go into images
mtools                 | images     | fills FAT file systems without mounting them
dosfstools             | images     | makes FAT file systems
fdisk                  | images     | sfdisk: partition tables of the images
e2fsprogs              | images     | makes ext4 file systems from a folder
kmod                   | images     | finds the dependencies of kernel modules
cpio                   | images     | packs the ramdisk
zstd                   | images     | compresses the ramdisk and the images
xz-utils               | images     | unpacks packages, and a test image in this format
binutils               | images     | objcopy: unified kernel images
qemu-system-x86        | lab        | machines
ovmf                   | lab        | UEFI firmware
ipxe-qemu              | lab        | boot ROMs of the network cards
iproute2               | lab bench  | bridges, taps and shaped links in network namespaces
util-linux             | images lab bench | unshare, flock
swtpm                  | lab        | TPMs
opensm                 | fabric     | a subnet manager (it manages a played fabric; as a service it stays off)
ibsim-utils            | fabric     | plays InfiniBand fabrics for OpenSM and the tools
libumad2sim0           | fabric     | turns OpenSM and the tools to the played fabric
infiniband-diags       | fabric     | ibnetdiscover, smpquery, sminfo, ibqueryerrors
qemu-utils             | test bench | image tests and bench-image: qemu-img
curl                   | test bench | a client of the API that is not ours; bench-image: one of the tools that ours is compared with
bmap-tools             | bench      | bench-image: one of the tools that ours is compared with
python3-libtorrent     | test bench | bench-fanout: a BitTorrent library that ours is compared with
python3-venv           | test bench | runs programs of other projects: an emulator (sushy-tools), validators (DMTF, OpenAPI), a client (sushy)
g++                    | test       | the fuzzer: libFuzzer is C++
libssl-dev             | test       | the BMC client with TLS by OpenSSL (feature platform-tls)
pkg-config             | test       | finds OpenSSL for the same
openssh-client         | test       | image self test: ssh, ssh-keygen
openssh-server         | test       | an SSH server to validate (the tests start it on the loopback address; as a service it stays off)
dropbear-bin           | test       | another SSH server, and its key converter
sqlite3                | test       | an attacker with write access to the database file
postgresql             | test       | the database of sites with several replicas (every test starts a server of its own; as a service it stays off)
dnsmasq-base           | test       | image self test: a DHCP server that is not ours
shellcheck             | test       | lint of the shell scripts
sbsigntool             | test       | Secure Boot: signs unified kernel images for the test firmware
zsh                    | test       | checks the completion script of the command line
fish                   | test       | checks the completion script of the command line
openssl                | test       | Secure Boot: reads the test key; tests: a TLS handshake by a client that is not ours
prometheus             | test       | reads the metrics, and judges the alerts (the tests start it; as a service it stays off)
nginx-light            | test bench | a caching proxy between agents and the image store (the tests start it; as a service it stays off)
systemd                | test       | systemd-analyze verifies the unit in deploy/ (the package is in every Debian that boots by it)
minisign               | test       | signs images as the sites that trust a key do
slurmctld              | test       | reads the topology of a hand-over pack (the tests start it; as a service it stays off)
slurm-client           | test       | scontrol, which asks it what it has read
python3-libvirt        | test       | the test driver of libvirt and its module for Python, behind that emulator
ipmitool               | test       | BMCs at ipmi:// (also on the machines of a control plane that has such), and their tests
openvswitch-switch     | test       | a real Ethernet switch (the tests start it in namespaces of their own; as a service it stays off)
netconfd               | test       | a NETCONF server with the models of an Ethernet switch (the tests start it in namespaces of their own; it has no service)
openipmi               | test       | ipmi_sim, a BMC that speaks IPMI only (the tests start it; as a service it stays off)
procps                 | test       | kill: programs that a test ends
chromium               | test bench | a browser that opens the web console
chromium-driver        | test bench | drives it
npm                    | test       | builds the web console once more and compares; installs an OpenID Connect provider and a client of the API for the tests
'

say() { printf 'deps: %s\n' "$*" >&2; }
# rows [GROUP...]: the table's rows, as package|groups|purpose; those of the groups, or all.
rows() {
    sed '/^$/d; s/ *| */|/g' <<<"$PACKAGES" | awk -F'|' -v wanted="$*" '
        BEGIN { n = split(wanted, groups, " ") }
        n == 0 { print; next }
        { for (i = 1; i <= n; i++) if (" " $2 " " ~ " " groups[i] " ") { print; next } }'
}
installed() {
    # Node.js of another origin brings its own npm.
    [ "$1" != npm ] || ! command -v npm >/dev/null || return 0
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

list=
if [ "${1:-}" = --list ]; then
    list=1
    shift
fi
for group; do
    if [ -z "$(rows "$group")" ]; then
        say "error: unknown group '$group'; the groups are build, images, lab, fabric, bench, test"
        exit 2
    fi
done
if [ -n "$list" ]; then
    rows "$@" | awk -F'|' '{ printf "%-24s %-12s %s\n", $1, $2, $3 }'
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "error: apt-get is missing. Install the packages of 'images/deps.sh --list $*' by hand, under the names of your distribution."
    exit 1
fi

# absent [GROUP...]: the packages that are not here, into `missing`.
missing=()
absent() {
    missing=()
    local package
    while IFS='|' read -r package _; do
        installed "$package" || missing+=("$package")
    done < <(rows "$@")
}

absent "$@"
while IFS='|' read -r package _ purpose; do
    case " ${missing[*]} " in *" $package "*) say "missing: $package ($purpose)" ;; esac
done < <(rows "$@")
if [ ${#missing[@]} -eq 0 ]; then
    say "all packages are installed"
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
"${apt[@]}" update || say "warning: not all package lists could be refreshed; the present lists are used"
# in_the_way PACKAGE...: the packages that apt would remove to install these.
in_the_way() { "${apt[@]}" install -s -y --no-install-recommends --allow-downgrades "$@" | sed -n 's/^Remv \([^ ]*\).*/\1/p'; }
# of_distribution PACKAGE: its newest version in the package lists other than the one that is here.
of_distribution() {
    local here
    here=$(dpkg-query -W -f='${Version}' "$1")
    apt-cache madison "$1" | awk -F' *[|] *' -v here="$here" '$2 != here { print $2; exit }'
}
wanted=("${missing[@]}")
for package in $(in_the_way "${wanted[@]}"); do
    version=$(of_distribution "$package")
    [ -n "$version" ] || continue
    say "$package $(dpkg-query -W -f='${Version}' "$package") is from another origin and blocks the installation: it is set back to $version"
    wanted+=("$package=$version")
done
obstacles=$(in_the_way "${wanted[@]}" | tr '\n' ' ')
if [ -n "$obstacles" ]; then
    say "error: to install these, apt would remove: $obstacles"
    say "Nothing was installed. Remove or replace these packages yourself if you do not need them, or use another machine."
    exit 1
fi
"${apt[@]}" install -y --no-install-recommends --no-remove --allow-downgrades "${wanted[@]}"
for service in "${services[@]}"; do
    if command -v systemctl >/dev/null && systemctl -q is-enabled "$service" 2>/dev/null; then
        "${root[@]}" systemctl -q disable --now "$service" 2>/dev/null || "${root[@]}" systemctl -q disable "$service"
    fi
done
absent "$@"
if [ ${#missing[@]} -gt 0 ]; then
    say "error: still not installed: ${missing[*]}"
    exit 1
fi
say "done"
