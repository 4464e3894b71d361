#!/usr/bin/env bash
# Builds the binary of the image without a container daemon, statically linked, and starts it where nothing else is: alone in
# an empty directory tree, as the image's user. Needs the right to chroot.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-gnu
out="${CARGO_TARGET_DIR:-target}/image"
RUSTFLAGS='-C target-feature=+crt-static' CARGO_PROFILE_DEV_DEBUG=0 \
  cargo build --locked --target "$target" --target-dir "$out" --bin sluice
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
cp "$out/$target/debug/sluice" examples/idle-quota.yaml "$tree/"
run() { chroot --userspec=65532:65532 "$tree" /sluice "$@"; }

# A binary that is not static does not start here: the tree has no loader and no library.
run --help | grep -q 'serve'
run simulate /idle-quota.yaml | grep -q .
if message=$(run serve 2>&1); then
  echo "serve starts without a cluster" >&2
  exit 1
fi
if ! grep -q 'no kubeconfig' <<<"$message"; then
  echo "serve fails for another reason: $message" >&2
  exit 1
fi
echo "starts alone as 65532; without a cluster it says: $message"
