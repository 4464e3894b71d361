#!/usr/bin/env bash
# Builds Helm from the Go module proxy if necessary, and prints the path of the program. Progress goes to stderr.
set -euo pipefail

helm=v3.22.0
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/helm
program=$cache/$helm/helm
if [[ -x $program ]]; then
  echo "$program"
  exit
fi

if ! command -v go >/dev/null; then
  echo "helm: building Helm needs Go 1.26 or newer, and there is no 'go' on the PATH; get it from https://go.dev/dl/" >&2
  exit 1
fi
mkdir -p "$cache"
if command -v flock >/dev/null; then
  exec 9>"$cache/lock"
  flock 9
fi
if [[ ! -x $program ]]; then
  echo "helm: building Helm $helm: about 2 minutes the first time on 2 cores" >&2
  work=$(mktemp -d "$cache/.building.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  CGO_ENABLED=0 GOBIN=$work go install -trimpath -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@$helm" >&2
  mkdir -p "$cache/$helm"
  mv "$work/helm" "$program"
fi
echo "$program"
