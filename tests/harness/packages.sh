#!/usr/bin/env bash
# Installs the system packages that some tests need, if that is possible without a prompt.
set -euo pipefail

missing=()
command -v prometheus >/dev/null || missing+=(prometheus)
# The tests that give a replica a wrong clock load its library.
command -v faketime >/dev/null || missing+=(faketime)
# The test of a release signs it.
command -v openssl >/dev/null || missing+=(openssl)
# The tests of the history start a server of their own.
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
[[ ${#missing[@]} -eq 0 ]] && exit 0
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
  echo "installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 && apt-get install -qq --no-install-recommends "${missing[@]}" >&2 && exit 0
fi
echo "missing: ${missing[*]}. Install them, or the tests of the dashboards, of wrong clocks and of the history in PostgreSQL cannot run." >&2
