#!/usr/bin/env bash
# Prints the rules as an object of the Prometheus operator: operator/generate.sh > operator/prometheusrule.yaml
set -euo pipefail
cd "$(dirname "$0")"

cat <<'HEAD'
# Generated from ../rules.yaml by generate.sh.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sluice
  labels: {app.kubernetes.io/name: sluice}
spec:
HEAD
grep -v '^#' ../rules.yaml | sed 's/^\(.\)/  \1/'
