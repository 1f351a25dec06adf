{{/* What pods and containers of all components have in common. */}}

{{/* Security context of a pod. Call with (list $ component). */}}
{{- define "blockyard.podSecurity" -}}
{{- toYaml (mergeOverwrite (deepCopy (index . 0).Values.podSecurityContext) (index . 1).podSecurityContext) -}}
{{- end -}}

{{/* Fields of a pod. Call with (list $ component), where component holds the usual keys. */}}
{{- define "blockyard.podFields" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
serviceAccountName: {{ include "blockyard.serviceAccountName" $root | quote }}
automountServiceAccountToken: false
# Links would add variables that begin with BLOCKYARD_, which the services refuse as unknown settings.
enableServiceLinks: false
securityContext:
  {{- include "blockyard.podSecurity" . | nindent 2 }}
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
{{- with $component.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with $component.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/*
Labels and annotations of a pod. Call with (list $ component "component name" annotations). No version of the chart or of
its application is among them: a chart that changes nothing about a pod must not start it again.
*/}}
{{- define "blockyard.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
labels:
  {{- include "blockyard.selector" (list $root (index . 2)) | nindent 2 }}
  app.kubernetes.io/part-of: blockyard
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

{{/* Probes of a container. Call with (list $ start ready alive), each what is asked, as a map. */}}
{{- define "blockyard.probes" -}}
{{- $values := (index . 0).Values.probes -}}
{{- $asked := rest . -}}
{{- range $index, $probe := list "startup" "readiness" "liveness" }}
{{ $probe }}Probe:
  {{- toYaml (index $asked $index) | nindent 2 }}
  periodSeconds: {{ int64 (index $values $probe).periodSeconds }}
  failureThreshold: {{ int64 (index $values $probe).failureThreshold }}
  timeoutSeconds: {{ int64 $values.timeoutSeconds }}
{{- end }}
{{- end -}}

{{/*
Probes of a service. Call with (list $ "port name" "/path of the readiness probe").
The start may take long, because slab files are preallocated and read; after it, /livez only says that the event loop
turns, so nothing that is merely away gets a container restarted.
*/}}
{{- define "blockyard.serviceProbes" -}}
{{- $port := index . 1 -}}
{{- $asked := list (index . 0) -}}
{{- range list "/startupz" (index . 2) "/livez" -}}
{{- $asked = append $asked (dict "httpGet" (dict "path" . "port" $port)) -}}
{{- end -}}
{{- include "blockyard.probes" $asked | trim -}}
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
