# shellcheck shell=sh disable=SC2015,SC2034,SC2154 # Variables come before this text.
# What is done with the traffic program on a machine; `step` says what. Variables come before this text.
say() { printf '%s=%s\n' "$1" "$2"; }

# Ends every program that runs from below a path, by what the kernel says of it: numbers in files may be another's by now.
end_below() {
  tries=0
  while :; do
    left=
    # Processes come and go meanwhile, which is no fault.
    # shellcheck disable=SC2012
    for pid in $(ls -l /proc/[0-9]*/exe 2>/dev/null | sed -n 's|^.* /proc/\([0-9]*\)/exe -> .*rackwright-traffic.*$|\1|p'); do
      runs=$(readlink "/proc/$pid/exe" 2>/dev/null)
      case $runs in
        # It goes on as the program that it carries, which lies in memory only, under the name that it had.
        "/memfd:rackwright-traffic"*) runs=$(tr '\000' '\n' <"/proc/$pid/cmdline" 2>/dev/null | head -n 1) ;;
      esac
      case $runs in
        "$1"*/program | "$1"*"/program (deleted)" | "$1program" | "$1program (deleted)")
          kill -9 "$pid" 2>/dev/null
          left="$left $pid"
          ;;
      esac
    done
    [ -n "$left" ] || return 0
    tries=$((tries + 1))
    [ "$tries" -le 8 ] || { echo "processes$left of an earlier test do not end" >&2; return 1; }
    [ "$tries" -le 3 ] || sleep 1
  done
}

sweep() {
  say begin rackwright-traffic-sweep-1
  for parent in $parents; do
    end_below "$parent/rackwright-traffic-" || exit 6
    rm -rf "$parent"/rackwright-traffic-* || exit 7
  done
  say swept yes
  say end rackwright-traffic-sweep-1
}

keep() {
  say begin rackwright-traffic-keep-1
  echo >"$folder/alive" || exit 8
  say kept yes
  say end rackwright-traffic-keep-1
}

start() {
  say begin rackwright-traffic-start-1
  if command -v sha256sum >/dev/null; then
    found=$(sha256sum <"$folder/program" | cut -d ' ' -f 1)
    [ "$found" = "$sha256" ] || { echo "the program arrived with the digest $found" >&2; exit 3; }
  else
    found=$(wc -c <"$folder/program")
    [ "$((found))" = "$bytes" ] || { echo "$found of $bytes bytes of the program arrived" >&2; exit 3; }
  fi
  chmod 700 "$folder/program" || exit 4
  RACKWRIGHT_TRAFFIC_TOKEN=$token
  export RACKWRIGHT_TRAFFIC_TOKEN
  ready=$("$folder/program" serve --deadline-s "$deadline_s" --port "$port") || exit 5
  say ready "$ready"
  say end rackwright-traffic-start-1
}

run() {
  say begin rackwright-traffic-run-1
  RACKWRIGHT_TRAFFIC_TOKEN=$token
  export RACKWRIGHT_TRAFFIC_TOKEN
  # Words by intention.
  # shellcheck disable=SC2086
  report=$("$folder/program" run --ms "$ms" --streams "$streams" $further $lanes) || exit 5
  say report "$report"
  say end rackwright-traffic-run-1
}

stop() {
  say begin rackwright-traffic-stop-1
  end_below "$folder/" || exit 6
  rm -rf "$folder" || exit 7
  say stopped yes
  say end rackwright-traffic-stop-1
}

"$step" </dev/null
