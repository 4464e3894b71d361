#!/usr/bin/env bash
# Makes the files of a release in target/release-files: static binaries with completions and manual pages, the chart, manifests,
# an SBOM, a krew manifest, checksums and their signature.
#
#   RELEASE_KEY=FILE      signs the checksums with this private key (PEM, ECDSA P-256); without it they are not signed
#   RELEASE_URL=URL       where the files will be, for the krew manifest
#   RELEASE_IMAGE=NAME    the name of the image in the manifests, without a tag
#   RELEASE_BINARY=FILE   takes this binary for the machine's own platform instead of building any, to try the other steps
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "release: $*" >&2; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
commit=$(git rev-parse --short=12 HEAD)
if [[ -z ${RELEASE_BINARY:-} && -n $(git status --porcelain) ]]; then
  say "the tree has changes that are in no commit, so the binary would not be of $commit"
  exit 1
fi
export SLUICE_COMMIT=$commit
url=${RELEASE_URL:-https://sluice.dev/releases/v$version}
image=${RELEASE_IMAGE:-registry.example.com/sluice}
out=target/release-files
rm -rf "$out"
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# The same files give the same archives.
when=$(git log -1 --format=%ct)
archive() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -C "$1" -cf - . | gzip -n; }

# Builds one target; says why if that is not possible here.
build() {
  local target=$1 architecture=$2 compiler=$3 missing=
  rustup target list --installed 2>/dev/null | grep -qx "$target" || missing="rustup target add $target"
  command -v "$compiler" >/dev/null || missing+="${missing:+, and }the C compiler $compiler"
  if [[ -n $missing ]]; then
    say "no binary for $architecture: it needs $missing"
    return 0
  fi
  say "building $target"
  local upper=${target^^} lower=${target//-/_}
  local linker=()
  # The linker of Rust itself needs no C library of the other architecture.
  [[ $architecture == "$(uname -m)" ]] || linker=("CARGO_TARGET_${upper//-/_}_LINKER=rust-lld")
  env "CC_$lower=$compiler" "${linker[@]}" cargo build --locked --profile dist --bin sluice --target "$target"
  mkdir -p "$stage/$architecture"
  cp "target/$target/dist/sluice" "$stage/$architecture/sluice"
}

own=$(uname -m)
if [[ -n ${RELEASE_BINARY:-} ]]; then
  mkdir -p "$stage/$own"
  cp "$RELEASE_BINARY" "$stage/$own/sluice"
else
  build x86_64-unknown-linux-musl x86_64 musl-gcc
  build aarch64-unknown-linux-musl aarch64 aarch64-linux-gnu-gcc
fi
if [[ ! -x $stage/$own/sluice ]]; then
  say "without a binary for $own there are no completions and manual pages"
  exit 1
fi

# Texts come from the binary of this machine, and are the same for all.
program=$stage/$own/sluice
mkdir -p "$stage/share/completions"
for shell in bash zsh fish; do
  # The script names the program by the path that it was called by.
  (cd "$stage/$own" && PATH=.:$PATH sluice completion "$shell") >"$stage/share/completions/sluice.$shell"
done
"$program" man "$stage/share/man"
cp LICENSE CHANGELOG.md "$stage/share/"

platforms=
for architecture in x86_64 aarch64; do
  [[ -f $stage/$architecture/sluice ]] || continue
  cp -r "$stage/share/." "$stage/$architecture/"
  name=sluice-$version-linux-$architecture.tar.gz
  archive "$stage/$architecture" >"$out/$name"
  go=amd64
  [[ $architecture == x86_64 ]] || go=arm64
  platforms+="  - selector: {matchLabels: {os: linux, arch: $go}}
    uri: $url/$name
    sha256: $(sha256sum "$out/$name" | cut -d' ' -f1)
    bin: sluice
    files:
    - {from: ./sluice, to: .}
    - {from: ./LICENSE, to: .}
"
done

cat >"$out/sluice.krew.yaml" <<KREW
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: sluice
spec:
  version: v$version
  homepage: https://sluice.dev
  shortDescription: Show and steer queues, quotas and shares of GPU teams
  description: |
    Asks a running Sluice why work waits and when it starts, lists teams and nodes, holds, orders and requeues workloads, and
    plays scenarios without a cluster.
  platforms:
$platforms
KREW

helm=$(tests/cluster/helm.sh)
# With the files that its links name, and the image of the release.
cp -rL manifests/chart "$stage/chart"
sed -i "s|repository: registry.example.com/sluice|repository: $image|" "$stage/chart/values.yaml"
"$helm" package "$stage/chart" --version "$version" --app-version "$version" --destination "$out" >/dev/null 2>"$stage/helm" ||
  { cat "$stage/helm" >&2; exit 1; }
kubectl() { if command -v kubectl >/dev/null; then command kubectl "$@"; else "$(tests/cluster/build.sh)/sluice-cluster" kubectl "$@"; fi; }
for folder in . without-mutating-policy; do
  name=sluice-$version.yaml
  [[ $folder == . ]] || name=sluice-$version-$folder.yaml
  kubectl kustomize "manifests/$folder" | sed "s|registry.example.com/sluice:[^ ]*|$image:$version|" >"$out/$name"
done

cargo metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-musl |
  cargo run --quiet --locked --package sluice-sbom -- Cargo.lock "$commit" "$(date -u -d "@$when" +%FT%TZ)" \
    >"$out/sluice-$version.cdx.json"

(cd "$out" && sha256sum -- * >checksums.txt)
if [[ -n ${RELEASE_KEY:-} ]]; then
  # The form of `cosign sign-blob --key`, so `cosign verify-blob --key` takes it as well.
  openssl dgst -sha256 -sign "$RELEASE_KEY" "$out/checksums.txt" | base64 -w0 >"$out/checksums.txt.sig"
  openssl pkey -in "$RELEASE_KEY" -pubout -out "$out/sluice.pub"
else
  say "not signed: RELEASE_KEY names no key"
fi
say "Sluice $version ($commit) is in $out:"
ls -l "$out" >&2
