# Sourced by scripts that consist of steps ("lanes"): runs each with its time, prints all times at the end, stops at
# the first that fails.
#   lane NAME COMMAND...
lane_names=()
lane_seconds=()
lane_started=$SECONDS

lane() {
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  lane_names+=("$name")
  lane_seconds+=($((SECONDS - start)))
  if [[ $status -ne 0 ]]; then
    lane_names[-1]+=" FAILED"
    exit "$status"
  fi
}

# The program, of a script that a person may call first.
build_ingot() {
  [[ -x build/release/ingot ]] || echo "the first build takes about five minutes on two cores"
  [[ -f build/release/build.ninja ]] ||  # another way of building, such as that of scripts/test, stays
    cmake --preset release -DINGOT_TESTS=OFF -DINGOT_NATIVE=ON -DCMAKE_UNITY_BUILD=ON >/dev/null
  cmake --build --preset release -j "$(nproc)" --target ingot
}

print_lanes() {
  echo
  for i in "${!lane_names[@]}"; do printf '  %-28s %5d s\n' "${lane_names[i]}" "${lane_seconds[i]}"; done
  printf '  %-28s %5d s\n' "total" $((SECONDS - lane_started))
}

# Tests wait for the disk at each checkpoint and record: where memory has the space, their folders are in it, half a GiB.
folders_in_memory() {
  local space available
  space=$(df -BM --output=avail /dev/shm 2>/dev/null | tail -n 1) || true
  available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
  space=${space//[!0-9]/}
  [[ -z ${TMPDIR:-} && ${space:-0} -ge 4096 && $available -ge 8192 ]] || return 0
  TMPDIR=$(mktemp -d /dev/shm/ingot-XXXXXX)
  export TMPDIR
  trap 'print_lanes; rm -rf -- "$TMPDIR"' EXIT
}
trap print_lanes EXIT
