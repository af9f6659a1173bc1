# shellcheck shell=sh disable=SC2154 # Variables come before this text.
# Runs the hardware probe once and removes it, whatever happens. Set before: folder, sha256, bytes, deadline_ms.
say() { printf '%s=%s\n' "$1" "$2"; }

remove() {
  rm -rf "$folder" || echo "$folder could not be removed" >&2
}

trap remove EXIT
trap 'exit 9' HUP INT TERM

if command -v sha256sum >/dev/null; then
  found=$(sha256sum <"$folder/program" | cut -d ' ' -f 1)
  [ "$found" = "$sha256" ] || { echo "the program arrived with the digest $found" >&2; exit 3; }
else
  found=$(wc -c <"$folder/program")
  [ "$((found))" = "$bytes" ] || { echo "$found of $bytes bytes of the program arrived" >&2; exit 3; }
fi
chmod 700 "$folder/program" || exit 4
"$folder/program" run --deadline-ms "$deadline_ms" </dev/null || exit 5
remove
trap - EXIT
[ -e "$folder" ] && exit 7
say removed yes
