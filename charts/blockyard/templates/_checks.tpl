{{/*
What the chart refuses beyond the schema: combinations of values that no single one of them shows. Each message names
the values to change. Included once, by the ConfigMap.
*/}}

{{- define "blockyard.check" -}}
{{- if not (or .Values.node.enabled .Values.standalone.enabled) -}}
{{- fail "node.enabled, standalone.enabled: nothing would run; set one of them to true" -}}
{{- end -}}
{{- if and .Values.standalone.enabled (not (include "blockyard.remoteTierRuns" .)) -}}
{{- fail "standalone.enabled: a remote-tier needs settings.g4.enabled" -}}
{{- end -}}
{{- include "blockyard.checkServer" (list "nats" .Values.nats (list "url" "existingSecret") .Values.node.enabled) -}}
{{- $remote := include "blockyard.remoteTierRuns" . -}}
{{- include "blockyard.checkServer" (list "redis" .Values.redis (list "url" "existingSecret") $remote) -}}
{{- include "blockyard.checkServer" (list "s3" .Values.s3 (list "endpointUrl") $remote) -}}
{{- if and (or $remote .Values.s3.bundled.enabled) (not .Values.s3.existingSecret.name) -}}
{{- fail "s3.existingSecret.name: name the secret with the account of the object store" -}}
{{- end -}}
{{- if and .Values.node.enabled (eq .Values.node.kind "Sidecar") (not .Values.engine.image.repository) -}}
{{- fail "engine.image.repository: node.kind Sidecar needs the image of the engine" -}}
{{- end -}}
{{- $ports := list .Values.ports.blockManager .Values.ports.offloadWorker .Values.ports.remoteTier -}}
{{- if ne (len ($ports | uniq)) 3 -}}
{{- fail "ports: the services of a node share an address; give each a port of its own" -}}
{{- end -}}
{{- end -}}

{{/* A server is given exactly once. Call with (list "name" values (list "keys of external") needed). */}}
{{- define "blockyard.checkServer" -}}
{{- $name := index . 0 -}}
{{- $values := index . 1 -}}
{{- $given := list -}}
{{- range index . 2 -}}
{{- $value := index $values.external . -}}
{{- if kindIs "map" $value -}}
{{- if $value.name -}}{{- $given = append $given (printf "%s.external.%s.name" $name .) -}}{{- end -}}
{{- else if $value -}}
{{- $given = append $given (printf "%s.external.%s" $name .) -}}
{{- end -}}
{{- end -}}
{{- if $values.bundled.enabled -}}
{{- $given = append $given (printf "%s.bundled.enabled" $name) -}}
{{- end -}}
{{- if gt (len $given) 1 -}}
{{- fail (printf "%s: give one of them, not all" (join ", " $given)) -}}
{{- end -}}
{{- if and (index . 3) (not $given) -}}
{{- $choices := list -}}
{{- range index . 2 -}}
{{- $choices = append $choices (printf "%s.external.%s%s" $name . (ternary ".name" "" (eq . "existingSecret"))) -}}
{{- end -}}
{{- fail (printf "%s or %s.bundled.enabled: one of them is needed" (join ", " $choices) $name) -}}
{{- end -}}
{{- end -}}

{{/* Refuse an object whose kind the cluster does not know. Call with (list $ "value that asks for it"). */}}
{{- define "blockyard.checkMonitoring" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.monitoring.checkCapabilities (not ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail (printf "%s: the cluster does not know monitoring.coreos.com/v1; install the Prometheus operator first, or set monitoring.checkCapabilities to false" (index . 1)) -}}
{{- end -}}
{{- end -}}
