#!/bin/sh
# Written by disaggc 0.1.0 from plan sha256:(digest), spec sha256:(digest). Do not edit.
# engine-check preflight VENDOR DEVICES RDMA SHM_BYTES [VARIABLE...]   before an engine starts
# engine-check ready URL SECONDS                                       until it answers
set -u
segments=${ENGINE_CHECK_SHM:-/dev/shm}

die() {
  echo "engine-check: $*" >&2
  exit 1
}

usable() {
  [ -e "$1" ] || die "$1 is missing: is the driver loaded?"
  { [ -r "$1" ] && [ -w "$1" ]; } || die "$1 cannot be opened by $(id -un): check its group"
}

check_devices() {
  case "$1" in
    nvidia)
      usable /dev/nvidiactl
      usable /dev/nvidia-uvm
      for index in $(echo "$2" | tr ',' ' '); do usable "/dev/nvidia$index"; done
      ;;
    amd)
      usable /dev/kfd
      found=0
      for node in /dev/dri/renderD*; do [ -e "$node" ] && found=$((found + 1)); done
      wanted=$(echo "$2" | tr ',' '\n' | grep -c .)
      [ "$found" -ge "$wanted" ] || die "/dev/dri shows $found accelerators, this engine needs $wanted"
      ;;
  esac
}

check_rdma() {
  [ "$1" = rdma ] || return 0
  for verbs in /dev/infiniband/uverbs*; do
    usable "$verbs"
    return 0
  done
}

check_memlock() {
  [ "$1" = rdma ] || return 0
  limit=$(ulimit -l)
  [ "$limit" = unlimited ] || die "locked memory is limited to $limit KiB, RDMA needs LimitMEMLOCK=infinity"
}

check_shm() {
  free=$(df -Pk "$segments" 2>/dev/null | awk 'NR == 2 { print $4 }')
  [ "${free:-0}" -ge $(($1 / 1024)) ] || die "$segments has ${free:-0} KiB free, this engine needs $(($1 / 1024))"
}

# Segments of an engine that was killed stay behind: remove those that engines make, that belong to this user, that are
# old, and that no process has mapped.
sweep_shm() {
  find "$segments" -xdev -maxdepth 1 -type f -user "$(id -u)" -mmin +10 \
    \( -name 'psm_*' -o -name 'sem.mp-*' -o -name 'nccl-*' -o -name 'vllm*' -o -name 'ucx_*' \) 2>/dev/null |
  while read -r file; do
    grep -qsF -- "$file" /proc/[0-9]*/maps || rm -f -- "$file"
  done
}

preflight() {
  vendor=$1 devices=$2 rdma=$3 shm=$4
  shift 4
  for name in "$@"; do
    [ -n "$(printenv "$name")" ] || die "secret variable $name is not set: put $name=... into its secrets file"
  done
  check_devices "$vendor" "$devices"
  check_rdma "$rdma"
  check_memlock "$rdma"
  sweep_shm
  check_shm "$shm"
}

answers() {
  if command -v curl >/dev/null 2>&1; then
    curl -fsS -o /dev/null --max-time 4 -- "$1" 2>/dev/null
  elif command -v wget >/dev/null 2>&1; then
    wget -q -O /dev/null -T 4 -- "$1" 2>/dev/null
  else
    python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=4)' "$1" 2>/dev/null
  fi
}

ready() {
  waited=0
  until answers "$1"; do
    [ "$waited" -lt "$2" ] || die "no answer from $1 within $2 s"
    kill -0 "${MAINPID:-$$}" 2>/dev/null || die "the engine ended before it answered"
    sleep 2
    waited=$((waited + 2))
  done
}

case "${1:-}" in
  preflight) shift; preflight "$@" ;;
  ready) shift; ready "$@" ;;
  *) die "usage: engine-check preflight|ready ..." ;;
esac
