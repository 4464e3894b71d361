#!/usr/bin/env bash
# Builds the programs of the local cluster if necessary, and prints their directory. Progress goes to
# stderr. `build.sh 1.34` builds that version of Kubernetes from the same sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

module=.
if (($# > 0)); then
  module=$1
  if [[ ! $module =~ ^[0-9.]+$ || ! -f $module/go.mod ]]; then
    echo "cluster: there is no version $module of Kubernetes here; the directories with a go.mod are the other versions" >&2
    exit 2
  fi
fi
kubernetes=v$(sed -n 's|^\tk8s.io/kubernetes v||p' "$module/go.mod")
kwok=v0.8.0
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/cluster

say() { echo "cluster: $*" >&2; }
checksum() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

key=$(cat "$module/go.mod" "$module/go.sum" ./*.go stages.yaml build.sh | checksum | cut -c1-16)
target=$cache/$key
if [[ -x $target/sluice-cluster && -x $target/kwok ]]; then
  touch "$target"
  echo "$target"
  exit
fi

if ! command -v go >/dev/null; then
  say "building Kubernetes needs Go 1.26 or newer, and there is no 'go' on the PATH; get it from https://go.dev/dl/"
  exit 1
fi
if ! version=$(go env GOVERSION 2>&1) || ! go list -modfile="$module/go.mod" -m >/dev/null 2>&1; then
  say "building Kubernetes needs Go 1.26 or newer, this is $(cd / && go env GOVERSION); get it from https://go.dev/dl/"
  exit 1
fi

mkdir -p "$cache"
if command -v flock >/dev/null; then
  exec 9>"$cache/lock"
  if ! flock -n 9; then
    say "another build is in progress, waiting for it"
    flock 9
  fi
  if [[ -x $target/sluice-cluster && -x $target/kwok ]]; then
    echo "$target"
    exit
  fi
fi

work=$(mktemp -d "$cache/.building.XXXXXX")
compiler=
cleanup() {
  [[ -z $compiler ]] || kill "$compiler" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Runs a go command that names the packages it compiles, and reports progress every 15 seconds.
compile() {
  local began=$SECONDS reported=0
  CGO_ENABLED=0 "$@" 2>"$work/log" &
  compiler=$!
  while kill -0 "$compiler" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - began - reported >= 15)); then
      reported=$((SECONDS - began))
      say "  $reported s, $(grep -vc : "$work/log" || true) packages compiled, $(grep -c '^go: downloading' "$work/log" || true) modules downloaded"
    fi
  done
  if ! wait "$compiler"; then
    compiler=
    say "the build failed:"
    grep -v '^go: downloading' "$work/log" | tail -n 30 >&2
    exit 1
  fi
  compiler=
  say "  done in $((SECONDS - began)) s"
}

say "building the control plane of Kubernetes $kubernetes with $version: about 6 minutes the first time on 2 cores, seconds later"
set_version=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  set_version+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
done
compile go build -modfile="$module/go.mod" -v -trimpath -buildvcs=false -ldflags "-s -w$set_version" -o "$work/sluice-cluster" .

if [[ ! -x $cache/kwok-$kwok/kwok ]]; then
  say "building kwok $kwok, which simulates nodes: about 2 minutes the first time"
  GOBIN=$work/kwok-$kwok compile go install -v -trimpath -ldflags '-s -w' "sigs.k8s.io/kwok/cmd/kwok@$kwok"
  rm -rf "$cache/kwok-$kwok"
  mv "$work/kwok-$kwok" "$cache/"
fi
ln "$cache/kwok-$kwok/kwok" "$work/kwok"

rm -f "$work/log"
chmod 755 "$work"
rm -rf "$target"
mv "$work" "$target"
# Other checkouts may use other builds: keep the most recently used ones.
ls -dt "$cache"/[0-9a-f]*[0-9a-f]/ | tail -n +9 | while read -r old; do rm -rf "$old"; done
echo "$target"
