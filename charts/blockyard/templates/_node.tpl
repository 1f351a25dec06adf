{{/* Pod of a node: its three services, alone (DaemonSet) or beside an engine (Sidecar). */}}

{{/*
Variables of a service. Call with (list $ "blockManager" "field that names the node").
The images set the address, ports and folders too; they are repeated here, because variables win over the settings file
and what probes and mounts rely on shall stand in one place.
*/}}
{{- define "blockyard.serviceVariables" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
- name: BLOCKYARD_CONFIG
  value: /etc/blockyard/blockyard.yaml
- name: BLOCKYARD_NODE__NAME
  valueFrom:
    fieldRef:
      fieldPath: {{ index . 2 }}
- name: BLOCKYARD_NODE__FOLDER
  value: /var/lib/blockyard
- name: BLOCKYARD_G3__FOLDER
  value: /var/lib/blockyard-g3
- name: BLOCKYARD_HTTP__HOST
  value: {{ $values.bindHost | quote }}
- name: BLOCKYARD_HTTP__ADVERTISED_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: BLOCKYARD_HTTP__BLOCK_MANAGER_PORT
  value: {{ $values.ports.blockManager | toString | quote }}
- name: BLOCKYARD_HTTP__OFFLOAD_WORKER_PORT
  value: {{ $values.ports.offloadWorker | toString | quote }}
- name: BLOCKYARD_HTTP__REMOTE_TIER_PORT
  value: {{ $values.ports.remoteTier | toString | quote }}
{{- include "blockyard.secretVariables" (list $root (index . 1)) }}
{{- with (index $values (index . 1)).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* User of the processes of a node, as digits; empty where the cluster gives it one. */}}
{{- define "blockyard.nodeUser" -}}
{{- with (include "blockyard.podSecurity" (list . .Values.node) | fromYaml).runAsUser }}{{ int64 . }}{{ end -}}
{{- end -}}

{{/* The same with its group, as chown takes it. */}}
{{- define "blockyard.nodeOwner" -}}
{{- include "blockyard.nodeUser" . -}}
{{- with (include "blockyard.podSecurity" (list . .Values.node) | fromYaml).runAsGroup }}:{{ int64 . }}{{ end -}}
{{- end -}}

{{/*
Path of the readiness probe of a service in a node's pod.
DaemonSet: /readyz, so that Ready means whole. Nothing that serves requests hangs on it: engines use the socket, and the
services publish addresses that are not ready. What hangs on it shall wait while something is away: rollouts, `--wait`.
Sidecar: /startupz. There the pod's readiness takes requests away from the engine, which goes on without NATS, Redis and
S3, and computes what it cannot load. So the pod is ready once its tiers are open; what is missing later is an alert.
*/}}
{{- define "blockyard.readinessPath" -}}
{{- ternary "/startupz" "/readyz" (eq .Values.node.kind "Sidecar") -}}
{{- end -}}

{{/* Container of a service. Call with (list $ "blockManager"). */}}
{{- define "blockyard.serviceContainer" -}}
{{- $root := index . 0 -}}
{{- $key := index . 1 -}}
{{- $name := kebabcase $key -}}
{{- $component := index $root.Values $key -}}
{{- $memory := get (include "blockyard.memory" $root | fromYaml) $name -}}
{{- $sidecar := eq $root.Values.node.kind "Sidecar" -}}
{{- $g3 := and (eq $key "offloadWorker") (include "blockyard.on" $root.Values.settings.g3.enabled) -}}
- name: {{ $name }}
  {{- include "blockyard.containerFields" (list $root $component) | nindent 2 }}
  env:
    {{- include "blockyard.serviceVariables" (list $root $key (ternary "metadata.name" "spec.nodeName" $sidecar)) | nindent 4 }}
  ports:
    - name: {{ $name }}
      containerPort: {{ index $root.Values.ports $key }}
  {{- include "blockyard.serviceProbes" (list $root $name (include "blockyard.readinessPath" $root)) | nindent 2 }}
  resources:
    {{- $request := ternary $memory.own $memory.limit (eq $key "remoteTier") }}
    {{- $resources := include "blockyard.resources" (list $root (printf "%s.resources" $key) $component.resources $request $memory.limit) | fromYaml }}
    {{- if and $sidecar $g3 (eq $root.Values.node.sidecar.g3.kind "EmptyDir") }}
    {{- $_ := set $resources "requests" (merge $resources.requests (dict "ephemeral-storage" (include "blockyard.g3VolumeSize" $root))) }}
    {{- end }}
    {{- toYaml $resources | nindent 4 }}
  volumeMounts:
    - name: state
      mountPath: /var/lib/blockyard
    {{- if $g3 }}
    - name: g3
      mountPath: /var/lib/blockyard-g3
    {{- end }}
    - name: config
      mountPath: /etc/blockyard
      readOnly: true
    - name: tmp
      mountPath: /tmp
    {{- with $component.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Containers of the services of a node. */}}
{{- define "blockyard.serviceContainers" -}}
{{- range include "blockyard.services" . | fromJsonArray }}
{{ include "blockyard.serviceContainer" (list $ .) }}
{{- end }}
{{- end -}}

{{/* Volumes of a node's pod, less those of state and G3. */}}
{{- define "blockyard.nodeVolumes" -}}
- name: config
  configMap:
    name: {{ include "blockyard.fullname" . | quote }}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: 64Mi
{{- with .Values.node.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotation that starts pods again when the settings change: they are read at the start only. */}}
{{- define "blockyard.settingsChecksum" -}}
{{- dict "checksum/settings" (include "blockyard.settings" . | sha256sum) | toJson -}}
{{- end -}}
