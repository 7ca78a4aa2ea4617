#!/usr/bin/env bash
# Runs the fuzz targets that build.sh made, one after another: run.sh SECONDS TARGET... Findings go to artifacts/TARGET, what
# they were found by to logs/TARGET.log. A finding does not stop the run. Leaks are not looked for.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=$1
shift
logs=${FUZZ_LOGS:-logs}
mkdir -p "$logs"
[[ -d corpus ]] || target/release/seeds
for target in "$@"; do
  case $target in
    gguf) dictionary=gguf ;;
    safetensors | config) dictionary=json ;;
    *) dictionary=$target ;;
  esac
  mkdir -p "artifacts/$target" "corpus/$target"
  ASAN_OPTIONS=symbolize=0:detect_leaks=0 nice -n 19 "target/release/$target" "corpus/$target" -fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1 \
    -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -max_len=8192 -print_funcs=0 -use_value_profile=1 \
    -dict="dictionaries/$dictionary.dict" -artifact_prefix="artifacts/$target/" </dev/null >>"$logs/$target.log" 2>&1
done
