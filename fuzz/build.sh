#!/usr/bin/env bash
# Builds the fuzz targets with a stable toolchain: coverage and the address sanitizer for ropex and the two libraries that read
# tokenizers and templates, none for the rest (so that little has to be built anew). `cargo +nightly fuzz build` instruments all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
flags='"-Zsanitizer=address", "-Cunsafe-allow-abi-mismatch=sanitizer", "--cfg=fuzzing", "-Cpasses=sancov-module"'
for argument in coverage-level=4 coverage-inline-8bit-counters coverage-pc-table coverage-trace-compares; do
  flags+=", \"-Cllvm-args=-sanitizer-$argument\""
done
configs=()
for package in ropex ropex-fuzz tokenizers minijinja minijinja-contrib; do
  configs+=(--config "profile.release.package.$package.rustflags=[$flags]")
done
RUSTC_BOOTSTRAP=1 cargo build --release -Zprofile-rustflags "${configs[@]}" --bins "$@"
