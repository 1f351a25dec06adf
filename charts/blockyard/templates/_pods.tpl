{{/* What pods and containers of all components have in common. */}}

{{/* Fields of a pod. Call with (list $ component), where component holds the usual keys. */}}
{{- define "blockyard.podFields" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
serviceAccountName: {{ include "blockyard.serviceAccountName" $root }}
automountServiceAccountToken: false
# Links would add variables that begin with BLOCKYARD_, which the services refuse as unknown settings.
enableServiceLinks: false
securityContext:
  {{- toYaml (mergeOverwrite (deepCopy $root.Values.podSecurityContext) $component.podSecurityContext) | nindent 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod. Call with (list $ component "component name" annotations). */}}
{{- define "blockyard.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
labels:
  {{- include "blockyard.labels" (list $root (index . 2)) | nindent 2 }}
  {{- with $component.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (index . 3) $component.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Image and security of a container. Call with (list $ component). */}}
{{- define "blockyard.containerFields" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
image: {{ include "blockyard.image" (list $root $component.image) | quote }}
imagePullPolicy: {{ $component.image.pullPolicy }}
securityContext:
  {{- toYaml (mergeOverwrite (deepCopy $root.Values.securityContext) $component.securityContext) | nindent 2 }}
{{- end -}}

{{/*
Probes of a service. Call with (list $ "port name" "/path of the readiness probe").
The start may take long, because slab files are preallocated and read; after it, /livez only says that the event loop
turns, so nothing that is merely away gets a container restarted.
*/}}
{{- define "blockyard.probes" -}}
{{- $probes := (index . 0).Values.probes -}}
{{- $port := index . 1 -}}
startupProbe:
  httpGet: {path: /startupz, port: {{ $port }}}
  periodSeconds: {{ $probes.startup.periodSeconds }}
  failureThreshold: {{ $probes.startup.failureThreshold }}
  timeoutSeconds: {{ $probes.timeoutSeconds }}
readinessProbe:
  httpGet: {path: {{ index . 2 }}, port: {{ $port }}}
  periodSeconds: {{ $probes.readiness.periodSeconds }}
  failureThreshold: {{ $probes.readiness.failureThreshold }}
  timeoutSeconds: {{ $probes.timeoutSeconds }}
livenessProbe:
  httpGet: {path: /livez, port: {{ $port }}}
  periodSeconds: {{ $probes.liveness.periodSeconds }}
  failureThreshold: {{ $probes.liveness.failureThreshold }}
  timeoutSeconds: {{ $probes.timeoutSeconds }}
{{- end -}}

{{/*
Requests and limits of a service with the computed memory. Call with (list $ "value path" resources request limit):
bytes that the request and the limit of memory are at least; they are equal unless those differ.
*/}}
{{- define "blockyard.resources" -}}
{{- $path := index . 1 -}}
{{- $resources := deepCopy (index . 2) -}}
{{- $request := index . 3 -}}
{{- $limit := index . 4 -}}
{{- $limits := default dict $resources.limits -}}
{{- $requests := default dict $resources.requests -}}
{{- $given := $limits.memory -}}
{{- if not $given -}}
{{- $_ := set $limits "memory" (include "blockyard.mebibytes" $limit) -}}
{{- else if lt (float64 (include "blockyard.bytes" (list $given (printf "%s.limits.memory" $path)))) (float64 $limit) -}}
{{- fail (printf "%s.limits.memory: %v is too small; with these sizes of settings.g2, settings.g3 and settings.node.block_bytes the container may come to use %s" $path $given (include "blockyard.mebibytes" $limit)) -}}
{{- end -}}
{{- if eq $request $limit -}}
{{- $asked := default $limits.memory $requests.memory -}}
{{- if ne (include "blockyard.bytes" (list $asked (printf "%s.requests.memory" $path))) (include "blockyard.bytes" (list $limits.memory (printf "%s.limits.memory" $path))) -}}
{{- fail (printf "%s.requests.memory: must be left out or the same as the limit (%v): the memory is used in full" $path $limits.memory) -}}
{{- end -}}
{{- $_ := set $requests "memory" $limits.memory -}}
{{- else if not $requests.memory -}}
{{- $_ := set $requests "memory" (include "blockyard.mebibytes" $request) -}}
{{- else if lt (float64 (include "blockyard.bytes" (list $requests.memory (printf "%s.requests.memory" $path)))) (float64 $request) -}}
{{- fail (printf "%s.requests.memory: %v is too small; the container uses %s for itself" $path $requests.memory (include "blockyard.mebibytes" $request)) -}}
{{- end -}}
{{- dict "requests" $requests "limits" $limits | toYaml -}}
{{- end -}}
