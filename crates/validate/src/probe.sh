# shellcheck shell=sh disable=SC2015,SC2034,SC2154 # Variables come before this text.
# Reads an installed system for validation. POSIX sh and busybox; changes nothing.
# Prints lines "key=value"; the fields of a list line are separated by tabs. Set before: wait_s, sample_mib.
LC_ALL=C
export LC_ALL
PATH=/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}

newline='
'

say() {
  printf '%s=%s\n' "$1" "$2"
}

# row KEY FIELD...
row() {
  printf '%s=' "$1"
  shift
  between=
  for field; do
    printf '%s%s' "$between" "$field"
    between='	'
  done
  printf '\n'
}

# The first line of a file into $line; empty where it cannot be read.
one() {
  line=
  [ -r "$1" ] || return 0
  { IFS= read -r line <"$1"; } 2>/dev/null
  return 0
}

# Hundredths of seconds since the kernel started, into $ticks.
now() {
  read -r ticks rest </proc/uptime
  ticks=${ticks%.*}${ticks#*.}
}

system() {
  one /proc/sys/kernel/random/boot_id
  say boot_id "$line"
  read -r uptime rest </proc/uptime
  say uptime_s "$uptime"
  say kernel "$(uname -r)"
  say architecture "$(uname -m)"
  one /proc/sys/kernel/hostname
  say hostname "$line"
  one /proc/cmdline
  say cmdline "$line"
  if [ -r /etc/os-release ]; then
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in
      ID=* | VERSION_ID=* | PRETTY_NAME=*) say os_release "$line" ;;
      esac
    done </etc/os-release
  fi
  say cpus "$(grep -c '^processor' /proc/cpuinfo)"
  while read -r key value unit; do
    [ "$key" = MemTotal: ] && say memory_kib "$value"
  done </proc/meminfo
  if [ -r /etc/rackwright/image ]; then
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in
      digest=* | generation=*) say image "$line" ;;
      esac
    done </etc/rackwright/image
  fi
}

# The size in KiB of each populated memory slot, from the SMBIOS table (DMTF DSP0134, 7.18: structures of type 17; a size of
# 7fff stands for the extended one, and its top bit for KiB in place of MiB). Nothing where the table or a tool is missing.
memory_modules() {
  [ -r /sys/firmware/dmi/tables/DMI ] || return
  od -An -v -tu1 /sys/firmware/dmi/tables/DMI 2>/dev/null | awk '
    { for (i = 1; i <= NF; i++) b[n++] = $i }
    END {
      for (p = 0; p + 4 <= n; p = q + 2) {
        type = b[p]; len = b[p + 1]
        if (type == 127 || len < 4) break
        if (type == 17 && len >= 14) {
          size = b[p + 12] + 256 * b[p + 13]
          if (size == 32767 && len >= 32)
            kib = 1024 * (b[p + 28] + 256 * b[p + 29] + 65536 * b[p + 30] + 16777216 * (b[p + 31] % 128))
          else if (size >= 32768) kib = size - 32768
          else kib = 1024 * size
          if (size != 0 && size != 65535) printf "memory_module=%.0f\n", kib
        }
        for (q = p + len; q + 1 < n && (b[q] != 0 || b[q + 1] != 0); q++);
      }
    }' 2>/dev/null
}

drives() {
  for d in /sys/block/*; do
    [ -e "$d/device" ] || continue
    name=${d##*/}
    case $name in
    loop* | ram* | zram* | dm-* | md* | sr* | fd* | nbd* | mtdblock*) continue ;;
    esac
    one "$d/hidden"
    [ "$line" = 1 ] && continue
    one "$d/size"
    sectors=$line
    one "$d/removable"
    removable=$line
    serial=
    for f in "$d/serial" "$d/device/serial"; do
      [ -n "$serial" ] && break
      one "$f"
      serial=$line
    done
    if [ -z "$serial" ] && [ -r "$d/device/vpd_pg80" ]; then
      # SCSI: four bytes of header before the unit serial number.
      serial=$(tail -c +5 "$d/device/vpd_pg80" 2>/dev/null | tr -d '\000' | tr -c '[:print:]' ' ')
    fi
    row drive "$name" "$sectors" "$removable" "$serial"
  done
}

nics() {
  for n in /sys/class/net/*; do
    [ -e "$n/device" ] || continue
    [ -e "$n/device/physfn" ] && continue
    one "$n/type"
    type=$line
    one "$n/address"
    mac=$line
    one "$n/bonding_slave/perm_hwaddr"
    [ -n "$line" ] && mac=$line
    row nic "${n##*/}" "$type" "$mac"
  done
}

pci_devices() {
  for p in /sys/bus/pci/devices/*; do
    [ -e "$p/vendor" ] || continue
    one "$p/vendor"
    vendor=$line
    one "$p/device"
    device=$line
    virtual=0
    [ -e "$p/physfn" ] && virtual=1
    row pci "${p##*/}" "$vendor" "$device" "$virtual"
  done
}

# The whole drive below the root file system, into $root; empty where there is none.
root_drive() {
  root=
  number=
  from=
  while read -r id parent majmin subtree point rest; do
    if [ "$point" = / ]; then
      number=$majmin
      from=${rest##* - }
    fi
  done </proc/self/mountinfo
  case $number in
  '') return ;;
  0:*)
    # A file system with a number of its own, such as btrfs: its source names the device.
    from=${from#* }
    from=${from%% *}
    case $from in
    /dev/*) from=$(readlink -f "$from") ;;
    *) return ;;
    esac
    block=/sys/class/block/${from##*/}
    ;;
  *) block=/sys/dev/block/$number ;;
  esac
  [ -e "$block" ] || return
  block=$(readlink -f "$block")
  for depth in 1 2 3 4 5 6 7 8; do
    below=
    for s in "$block"/slaves/*; do
      [ -e "$s" ] && below=$s && break
    done
    [ -n "$below" ] || break
    block=$(readlink -f "$below")
  done
  [ -e "$block/partition" ] && block=${block%/*}
  root=${block##*/}
}

# Sequential reads at queue depth 1, past the page cache; grows until they take a fifth of a second.
disk_read() {
  one "/sys/block/$root/size"
  most=$((${line:-0} / 2048))
  mib=$sample_mib
  how=direct
  flags=iflag=direct
  if ! dd if="/dev/$root" of=/dev/null bs=4096 count=1 $flags >/dev/null 2>&1; then
    how=cold-cache
    flags=
  fi
  while :; do
    [ "$mib" -gt "$most" ] && mib=$most
    [ "$how" = cold-cache ] && sync && echo 1 >/proc/sys/vm/drop_caches
    now
    begin=$ticks
    if ! told=$(dd if="/dev/$root" of=/dev/null bs=1048576 count="$mib" $flags 2>&1); then
      say disk_read_error "reading $mib MiB of /dev/$root failed: ${told%%"$newline"*}"
      return
    fi
    now
    took=$((ticks - begin))
    if [ "$took" -ge 20 ] || [ "$mib" -ge 1024 ] || [ "$mib" -ge "$most" ]; then
      break
    fi
    mib=$((mib * 4))
  done
  row disk_read "$root" "$mib" "$took" "$how"
}

systemd() {
  if ! [ -d /run/systemd/system ]; then
    say systemd none
    return
  fi
  now
  limit=$((ticks + wait_s * 100))
  state=$(timeout "$wait_s" systemctl is-system-running --wait 2>/dev/null)
  while :; do
    case $state in
    '' | initializing | starting | offline | unknown) ;;
    *) break ;;
    esac
    now
    [ "$ticks" -ge "$limit" ] && break
    # Only systemd before version 240, which knows no --wait, gets here more than once.
    sleep 1
    state=$(systemctl is-system-running 2>/dev/null)
  done
  say systemd "${state:-unknown}"
  systemctl list-units --failed --plain --no-legend --no-pager 2>/dev/null | head -n 50 | while read -r unit rest; do
    say failed_unit "$unit"
  done
}

main() {
  say begin rackwright-probe-1
  systemd
  system
  memory_modules
  drives
  nics
  pci_devices
  root_drive
  say root_drive "$root"
  [ -n "$root" ] && [ "$sample_mib" -gt 0 ] && disk_read
  say end rackwright-probe-1
}

main </dev/null
