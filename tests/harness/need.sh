#!/usr/bin/env bash
# Names each missing program and the way to install it.
set -euo pipefail

missing=0
for program in "$@"; do
  command -v "$program" >/dev/null && continue
  missing=1
  case $program in
    cargo) how="install Rust 1.89 or newer with the script on https://rustup.rs" ;;
    go) how="install Go 1.26 or newer from https://go.dev/dl" ;;
    cc) how="install a C compiler (Debian: apt-get install gcc libc6-dev)" ;;
    openssl) how="install OpenSSL (Debian: apt-get install openssl)" ;;
    chromium) how="install Chromium (Debian: apt-get install chromium fonts-dejavu-core)" ;;
    *) how="install it" ;;
  esac
  echo "$program is missing: $how." >&2
done
exit "$missing"
