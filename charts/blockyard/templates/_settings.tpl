{{/* The settings file of the services, and what the chart adds to their environment. */}}

{{/* "true" where a remote-tier is part of a node or runs by itself. */}}
{{- define "blockyard.remoteTierRuns" -}}
{{- include "blockyard.on" .Values.settings.g4.enabled -}}
{{- end -}}

{{/* Services of a node, as keys of the values; JSON. */}}
{{- define "blockyard.services" -}}
{{- $services := list "blockManager" "offloadWorker" -}}
{{- if include "blockyard.remoteTierRuns" . -}}
{{- $services = append $services "remoteTier" -}}
{{- end -}}
{{- $services | toJson -}}
{{- end -}}

{{/* The settings file. Secrets are not in it: they come as variables. */}}
{{- define "blockyard.settings" -}}
{{- $tree := deepCopy .Values.settings -}}
{{- if .Values.nats.external.url -}}
{{- $_ := set $tree "nats" (merge (dict "url" .Values.nats.external.url) (default dict $tree.nats)) -}}
{{- else if and .Values.nats.bundled.enabled (not .Values.nats.bundled.existingSecret.name) -}}
{{- $_ := set $tree "nats" (merge (dict "url" (printf "nats://%s-nats:4222" (include "blockyard.fullname" .))) (default dict $tree.nats)) -}}
{{- end -}}
{{- if .Values.redis.external.url -}}
{{- $_ := set $tree "redis" (merge (dict "url" .Values.redis.external.url) (default dict $tree.redis)) -}}
{{- else if and .Values.redis.bundled.enabled (not .Values.redis.bundled.existingSecret.name) -}}
{{- $_ := set $tree "redis" (merge (dict "url" (printf "redis://%s-redis:6379/0" (include "blockyard.fullname" .))) (default dict $tree.redis)) -}}
{{- end -}}
{{- if .Values.s3.external.endpointUrl -}}
{{- $_ := set $tree.g4 "endpoint_url" .Values.s3.external.endpointUrl -}}
{{- else if .Values.s3.bundled.enabled -}}
{{- $_ := set $tree.g4 "endpoint_url" (printf "http://%s-s3:8333" (include "blockyard.fullname" .)) -}}
{{- end -}}
{{- range $section, $entries := $tree }}
{{ $section }}:
{{- range $key, $value := $entries }}
  {{ $key }}: {{ include "blockyard.scalar" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A value of a setting as YAML. Numbers arrive as floats, whose text would be 1e+06 for a million. */}}
{{- define "blockyard.scalar" -}}
{{- if kindIs "string" . -}}
{{- . | quote -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- . | toString -}}
{{- end -}}
{{- end -}}

{{/* Variable from a secret. Call with (list "NAME" "secret" "key"). */}}
{{- define "blockyard.secretVariable" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end -}}

{{/* Addresses and accounts of the servers that a service talks to, by reference. Call with (list $ "blockManager"). */}}
{{- define "blockyard.secretVariables" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
{{- $fullname := include "blockyard.fullname" $root -}}
{{- if eq (index . 1) "blockManager" }}
{{- with $values.nats.external.existingSecret }}
{{- if .name }}
{{ include "blockyard.secretVariable" (list "BLOCKYARD_NATS__URL" .name .key) }}
{{- end }}
{{- end }}
{{- with $values.nats.bundled.existingSecret }}
{{- if and $values.nats.bundled.enabled .name }}
{{ include "blockyard.secretVariable" (list "NATS_USER" .name .userKey) }}
{{ include "blockyard.secretVariable" (list "NATS_PASSWORD" .name .passwordKey) }}
- name: BLOCKYARD_NATS__URL
  value: nats://$(NATS_USER):$(NATS_PASSWORD)@{{ $fullname }}-nats:4222
{{- end }}
{{- end }}
{{- end }}
{{- if eq (index . 1) "remoteTier" }}
{{- with $values.redis.external.existingSecret }}
{{- if .name }}
{{ include "blockyard.secretVariable" (list "BLOCKYARD_REDIS__URL" .name .key) }}
{{- end }}
{{- end }}
{{- with $values.redis.bundled.existingSecret }}
{{- if and $values.redis.bundled.enabled .name }}
{{ include "blockyard.secretVariable" (list "REDIS_PASSWORD" .name .passwordKey) }}
- name: BLOCKYARD_REDIS__URL
  value: redis://:$(REDIS_PASSWORD)@{{ $fullname }}-redis:6379/0
{{- end }}
{{- end }}
{{- with $values.s3.existingSecret }}
{{ include "blockyard.secretVariable" (list "BLOCKYARD_G4__ACCESS_KEY" .name .accessKeyKey) }}
{{ include "blockyard.secretVariable" (list "BLOCKYARD_G4__SECRET_KEY" .name .secretKeyKey) }}
{{- end }}
{{- end }}
{{- end -}}
