{{/* The documents of a file, as a JSON object {list: [...]} of texts without leading separators. */}}
{{- define "sluice.documents" -}}
{{- $list := list -}}
{{- range regexSplit "(?m)^---[ \t]*$" . -1 -}}
{{- if regexMatch "(?m)^kind:" . -}}
{{- $list = append $list (trim .) -}}
{{- end -}}
{{- end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{/* The plural names of the kinds with policies, as a JSON object {list: [...]}. */}}
{{- define "sluice.kinds" -}}
{{- $wanted := .Values.kinds -}}
{{- $capabilities := .Capabilities -}}
{{- $table := (.Files.Get "files/policies/kinds.yaml" | fromYaml).kinds -}}
{{- $known := list -}}
{{- $list := list -}}
{{- range $table -}}
{{- $known = append $known .kind -}}
{{- $take := false -}}
{{- if kindIs "string" $wanted -}}
{{- $take = or (eq $wanted "all") ($capabilities.APIVersions.Has (printf "%s/%s" .apiVersion .kind)) -}}
{{- else -}}
{{- $take = has .kind $wanted -}}
{{- end -}}
{{- if $take -}}
{{- $list = append $list .plural -}}
{{- end -}}
{{- end -}}
{{- if not (kindIs "string" $wanted) -}}
{{- range $wanted -}}
{{- if not (has . $known) -}}
{{- fail (printf "kinds: %s is not one of %s; print the policies of your own kinds with `sluice kinds`" . (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{/* Whether there are mutating policies: "true" or "". Before 1.36 they are not on by default. */}}
{{- define "sluice.mutating" -}}
{{- $served := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- if or (eq .Values.mutatingPolicies "always") (and (eq .Values.mutatingPolicies "auto") $served) -}}true{{- end -}}
{{- end -}}

{{- define "sluice.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}
