{{/*
What the chart refuses beyond the schema: combinations of values that no single one of them shows. Each message names
the values to change. Included once, by the ConfigMap.
*/}}

{{- define "blockyard.check" -}}
{{- if not (or .Values.node.enabled .Values.standalone.enabled) -}}
{{- fail "node.enabled, standalone.enabled: nothing would run; set one of them to true" -}}
{{- end -}}
{{- $fullname := include "blockyard.fullname" . -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "fullnameOverride: no service can be called %s: give a name that begins with a letter and has no dots, instead of what is made from the name of the release" $fullname) -}}
{{- end -}}
{{- $block := include "blockyard.bytes" (list .Values.settings.node.block_bytes "settings.node.block_bytes") | int64 -}}
{{- if or (mod $block 4096) (lt $block 4096) (gt $block 67100672) -}}
{{- fail (printf "settings.node.block_bytes: %v must be a multiple of 4096, from 4KiB to 65528KiB" .Values.settings.node.block_bytes) -}}
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
{{- $ports := list .Values.ports.blockManager .Values.ports.offloadWorker .Values.ports.remoteTier -}}
{{- if ne (len ($ports | uniq)) 3 -}}
{{- fail "ports: the services of a node share an address; give each a port of its own" -}}
{{- end -}}
{{- $stream := dig "nats" "stream_max_bytes" "" .Values.settings -}}
{{- if and .Values.nats.bundled.enabled $stream -}}
{{- if gt (float64 (include "blockyard.bytes" (list $stream "settings.nats.stream_max_bytes"))) (float64 (include "blockyard.natsFileBytes" .)) -}}
{{- fail (printf "nats.bundled.persistence.size: %s has no room for settings.nats.stream_max_bytes (%v) and a tenth more" .Values.nats.bundled.persistence.size $stream) -}}
{{- end -}}
{{- end -}}
{{- if .Values.redis.bundled.enabled -}}
{{- include "blockyard.checkIndexMemory" .Values.redis.bundled -}}
{{- end -}}
{{- if .Values.node.enabled -}}
{{- if eq .Values.node.kind "Sidecar" -}}
{{- include "blockyard.checkSidecar" . -}}
{{- else -}}
{{- include "blockyard.checkDaemonSet" . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "blockyard.checkDaemonSet" -}}
{{- if and .Values.node.hostPath.prepare (not (include "blockyard.nodeUser" .)) -}}
{{- fail "node.hostPath.prepare: needs podSecurityContext.runAsUser, to whom the folders are given" -}}
{{- end -}}
{{- if eq (clean .Values.node.hostPath.state) (clean .Values.node.hostPath.g3) -}}
{{- fail "node.hostPath: state and g3 must be two folders" -}}
{{- end -}}
{{- $surge := dig "rollingUpdate" "maxSurge" 0 .Values.node.updateStrategy -}}
{{- if not (has ($surge | toString) (list "0" "0%")) -}}
{{- fail "node.updateStrategy.rollingUpdate.maxSurge: two nodes cannot run on one machine; leave it out" -}}
{{- end -}}
{{- end -}}

{{- define "blockyard.checkSidecar" -}}
{{- $services := include "blockyard.services" . | fromJsonArray -}}
{{- $names := list -}}
{{- $ports := list -}}
{{- range $services -}}
{{- $names = append $names (kebabcase .) -}}
{{- $ports = append $ports (index $.Values.ports . | toString) -}}
{{- end -}}
{{- range .Values.engine.ports -}}
{{- if has (.containerPort | toString) $ports -}}
{{- fail (printf "engine.ports: %v is a port of the services beside the engine" .containerPort) -}}
{{- end -}}
{{- if has .name $names -}}
{{- fail (printf "engine.ports: %s is the name of a port of the services beside the engine" .name) -}}
{{- end -}}
{{- end -}}
{{- $owner := include "blockyard.nodeUser" . -}}
{{- with .Values.engine.securityContext -}}
{{- if and (not (kindIs "invalid" .runAsUser)) (ne (int64 .runAsUser | toString) $owner) -}}
{{- fail (printf "engine.securityContext.runAsUser: %d cannot use the sockets of %s" (int64 .runAsUser) (empty $owner | ternary "another user" (printf "user %s" $owner))) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.node.sidecar.g3.size (include "blockyard.on" .Values.settings.g3.enabled) -}}
{{- $size := float64 (include "blockyard.bytes" (list .Values.node.sidecar.g3.size "node.sidecar.g3.size")) -}}
{{- $slab := float64 (include "blockyard.slabBytes" .) -}}
{{- if lt $size $slab -}}
{{- fail (printf "node.sidecar.g3.size: %s is too small; the slab takes %s" .Values.node.sidecar.g3.size (include "blockyard.mebibytes" $slab)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "blockyard.checkIndexMemory" -}}
{{- $most := float64 (include "blockyard.bytes" (list .maxMemory "redis.bundled.maxMemory")) -}}
{{- $limit := float64 (include "blockyard.bytes" (list .resources.limits.memory "redis.bundled.resources.limits.memory")) -}}
{{- if gt (mulf 1.25 $most) $limit -}}
{{- fail (printf "redis.bundled.maxMemory: %s does not fit into redis.bundled.resources.limits.memory (%s), which must be a quarter more" .maxMemory .resources.limits.memory) -}}
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
