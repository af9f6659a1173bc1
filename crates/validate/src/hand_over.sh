# shellcheck shell=sh disable=SC2015,SC2034,SC2154 # Variables come before this text.
# Removes the provisioning key from an installed system. POSIX sh and busybox. Set before: blob (the base64 part of the
# public key) and extra (more files, one a line). Each file is replaced by one rename and keeps its mode and owner.
LC_ALL=C
export LC_ALL
PATH=/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}
removed=0

say() {
  printf '%s=%s\n' "$1" "$2"
}

fail() {
  say failed "$1"
  exit 1
}

has_key() {
  [ -f "$1" ] && grep -qF -e "$blob" "$1" 2>/dev/null
}

# scrub FILE [NAME]: takes the key's lines out of one file, and tells it by its name.
scrub() {
  has_key "$1" || return 0
  file=$(readlink -f "$1") || fail "cannot resolve $1"
  fresh=$(mktemp "${file%/*}/.rackwright.XXXXXX") || fail "cannot write next to $file"
  cp -p "$file" "$fresh" || { rm -f "$fresh"; fail "cannot copy $file"; }
  grep -vF -e "$blob" "$file" >"$fresh"
  # 1: no line is left, which is fine; more: an error.
  [ $? -le 1 ] || { rm -f "$fresh"; fail "cannot filter $file"; }
  mv -f "$fresh" "$file" || { rm -f "$fresh"; fail "cannot replace $file"; }
  has_key "$file" && fail "$file still has the key"
  removed=$((removed + 1))
  say removed "${2:-$file}"
}

# Where login looks for keys: every home, the usual system-wide places, and what sshd itself says.
scrub_logins() {
  while IFS=: read -r user pass uid gid gecos home shell; do
    case $home in
    /*) ;;
    *) continue ;;
    esac
    scrub "$home/.ssh/authorized_keys"
    scrub "$home/.ssh/authorized_keys2"
  done </etc/passwd
  for f in /etc/dropbear/authorized_keys /etc/ssh/authorized_keys /etc/ssh/authorized_keys/* \
    /etc/ssh/authorized_keys.d/* /etc/ssh/authorized_keys.d/*/*; do
    scrub "$f"
  done
  while IFS= read -r f; do
    [ -n "$f" ] && scrub "$f"
  done <<END
$extra
END
  [ "$removed" -gt 0 ] && return
  # Nothing found in the usual places: ask sshd. %h and %u are root's, the user who logs in.
  for f in $(sshd -T 2>/dev/null | sed -n 's/^authorizedkeysfile //p' | sed 's,%h,/root,g; s,%u,root,g; s,%%,%,g'); do
    case $f in
    /*) scrub "$f" ;;
    *) scrub "/root/$f" ;;
    esac
  done
}

seed_device() {
  for d in /dev/disk/by-label/CIDATA /dev/disk/by-label/cidata; do
    [ -b "$d" ] && readlink -f "$d" && return
  done
  d=$(blkid -L CIDATA 2>/dev/null) && [ -b "$d" ] && echo "$d" && return
  d=$(findfs LABEL=CIDATA 2>/dev/null) && [ -b "$d" ] && echo "$d"
}

scrub_seed_at() {
  scrub "$1/meta-data" seed:meta-data
  scrub "$1/rackwright/authorized_keys" seed:rackwright/authorized_keys
}

# The seed lies on a partition of its own; a seed reader would bring the key back after a reset to factory state.
scrub_seed() {
  device=$(seed_device)
  if [ -z "$device" ]; then
    say seed absent
    return
  fi
  while read -r from at kind options rest; do
    [ "$from" = "$device" ] || continue
    case ,$options, in
    *,ro,*)
      mount -o remount,rw "$at" 2>/dev/null || { say seed "failed: $at cannot be made writable"; return; }
      (scrub_seed_at "$at")
      outcome=$?
      mount -o remount,ro "$at" 2>/dev/null
      ;;
    *)
      (scrub_seed_at "$at")
      outcome=$?
      ;;
    esac
    [ "$outcome" = 0 ] && say seed clean || say seed "failed: its files cannot be changed"
    return
  done </proc/mounts
  at=$(mktemp -d) || { say seed "failed: no place to mount it"; return; }
  if mount -t vfat "$device" "$at" 2>/dev/null || mount "$device" "$at" 2>/dev/null; then
    (scrub_seed_at "$at")
    outcome=$?
    umount "$at"
    [ "$outcome" = 0 ] && say seed clean || say seed "failed: its files cannot be changed"
  else
    say seed "failed: $device cannot be mounted"
  fi
  rmdir "$at" 2>/dev/null
}

main() {
  say begin rackwright-hand-over-1
  scrub_seed
  scrub_logins
  sync
  say end rackwright-hand-over-1
}

main </dev/null
