{{/* Parts of the network policies. */}}

{{/* Port of an address such as nats://host:4222; given ports win. Call with (list given "address" default). */}}
{{- define "blockyard.portOf" -}}
{{- $given := int (index . 0) -}}
{{- if $given -}}
{{- $given -}}
{{- else -}}
{{- $parts := urlParse (index . 1) -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $parts.host) -}}
{{- if $port -}}
{{- $port -}}
{{- else -}}
{{- default (index . 2) (get (dict "http" "80" "https" "443") $parts.scheme) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Rule for one flow. Call with (list "from|to" peers (list ports)); without peers, anybody. */}}
{{- define "blockyard.flow" -}}
- ports:
    {{- range index . 2 }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with index . 1 }}
  {{ index $ 0 }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Pods of a component, as a peer. Call with (list $ "component"). */}}
{{- define "blockyard.peer" -}}
podSelector:
  matchLabels:
    {{- include "blockyard.selector" . | nindent 4 }}
{{- end -}}

{{- define "blockyard.dnsFlow" -}}
- ports:
    - port: {{ .Values.networkPolicy.dns.port }}
      protocol: UDP
    - port: {{ .Values.networkPolicy.dns.port }}
      protocol: TCP
  {{- with .Values.networkPolicy.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Flow to a server, bundled or yours. Call with (list $ "nats" "address" default port of the bundled one). */}}
{{- define "blockyard.serverFlow" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $policy := index $root.Values.networkPolicy $name -}}
{{- if (index $root.Values $name).bundled.enabled -}}
{{- include "blockyard.flow" (list "to" (list (include "blockyard.peer" (list $root $name) | fromYaml)) (list (index . 3))) -}}
{{- else -}}
{{- include "blockyard.flow" (list "to" $policy.to (list (include "blockyard.portOf" (list $policy.port (index . 2) (index . 3))))) -}}
{{- end -}}
{{- end -}}

{{/* Flows of a remote-tier: index and object store. */}}
{{- define "blockyard.remoteTierFlows" -}}
{{ include "blockyard.serverFlow" (list . "redis" .Values.redis.external.url 6379) }}
{{ include "blockyard.serverFlow" (list . "s3" .Values.s3.external.endpointUrl 8333) }}
{{- end -}}

{{/* Flow of traces, where there are any. */}}
{{- define "blockyard.tracesFlow" -}}
{{- with .Values.settings.tracing.endpoint_url -}}
{{- $policy := $.Values.networkPolicy.otlp -}}
{{ include "blockyard.flow" (list "to" $policy.to (list (include "blockyard.portOf" (list $policy.port . 4318)))) }}
{{- end -}}
{{- end -}}
