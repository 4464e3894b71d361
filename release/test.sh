#!/usr/bin/env bash
# Makes a release of the debug binary with a new key, and checks every file of it, as a downloader would. Seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release test: $*" >&2; exit 1; }

openssl ecparam -name prime256v1 -genkey -noout -out "$work/key.pem"
RELEASE_BINARY=${CARGO_TARGET_DIR:-target}/debug/sluice RELEASE_KEY=$work/key.pem RELEASE_IMAGE=registry.internal/sluice \
  release/build.sh 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
cd target/release-files
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../../Cargo.toml | head -n 1)
archive=sluice-$version-linux-$(uname -m).tar.gz

# The signature is of the owner of the key, and of these checksums.
base64 -d checksums.txt.sig >"$work/signature"
openssl dgst -sha256 -verify sluice.pub -signature "$work/signature" checksums.txt >/dev/null || fail "the signature is wrong"
sed 's/^./x/' checksums.txt >"$work/changed"
if openssl dgst -sha256 -verify sluice.pub -signature "$work/signature" "$work/changed" >/dev/null 2>&1; then
  fail "the signature is of any text"
fi
sha256sum --quiet --check checksums.txt
for file in *; do
  [[ $file == checksums.txt* || $file == sluice.pub ]] || grep -q " $file\$" checksums.txt || fail "$file has no checksum"
done

# The archive has what the krew manifest says, and its program runs, as a plugin of kubectl as well.
grep -q "sha256: $(sha256sum "$archive" | cut -d' ' -f1)" sluice.krew.yaml || fail "krew has another checksum"
grep -q "uri: https://sluice.dev/releases/v$version/$archive" sluice.krew.yaml || fail "krew has another address"
mkdir "$work/plugin"
tar -xzf "$archive" -C "$work/plugin"
[[ $("$work/plugin/sluice" version) == "sluice $version"* ]] || fail "the program has another version"
for file in LICENSE CHANGELOG.md completions/sluice.bash completions/sluice.zsh completions/sluice.fish man/sluice.1 man/sluice-queue.1; do
  [[ -s $work/plugin/$file ]] || fail "the archive has no $file"
done
bash -n "$work/plugin/completions/sluice.bash"
grep -q "$work" -r "$work/plugin/completions" && fail "a completion has the path of the build"
grep -q "^## $version" "$work/plugin/CHANGELOG.md" || fail "the changelog says nothing of $version"

grep -q '"purl": "pkg:cargo/kube@' "sluice-$version.cdx.json" || fail "the SBOM has no crates"
tar -xzf "sluice-$version.tgz" -C "$work" sluice/files/base/crds.yaml || fail "the chart has no CRDs"
grep -q "image: registry.internal/sluice:$version" "sluice-$version.yaml" || fail "the manifests have another image"
tar -xOf "sluice-$version.tgz" sluice/values.yaml | grep -q "repository: registry.internal/sluice$" || fail "the chart has another image"

# The same sources give the same archive.
cp "$archive" "$work/first.tar.gz"
cd ../..
RELEASE_BINARY=${CARGO_TARGET_DIR:-target}/debug/sluice release/build.sh 2>/dev/null
cmp "$work/first.tar.gz" "target/release-files/$archive" || fail "two releases of one binary differ"
echo "the release is complete"
