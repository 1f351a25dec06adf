{{/* Sizes: texts like 64GiB (settings) and 64Gi (Kubernetes) as bytes, and the memory that follows from the settings. */}}

{{/* Bytes of a size, as digits. Call with (list value "name of the value"). */}}
{{- define "blockyard.bytes" -}}
{{- $value := index . 0 -}}
{{- if kindIs "float64" $value -}}
{{- printf "%.0f" $value -}}
{{- else -}}
{{- $text := $value | toString | lower | nospace -}}
{{- $number := regexFind "^([0-9]+([.][0-9]*)?|[.][0-9]+)" $text -}}
{{- $unit := trimSuffix "b" (trimPrefix $number $text) -}}
{{- $units := dict "" 1 "k" 1000 "m" 1000000 "g" 1000000000 "t" 1000000000000 "p" 1000000000000000
      "ki" 1024 "mi" 1048576 "gi" 1073741824 "ti" 1099511627776 "pi" 1125899906842624 -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%s: %v is no size; write one like 64GiB" (index . 1) $value) -}}
{{- else -}}
{{- printf "%.0f" (mulf (float64 $number) (float64 (get $units $unit))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Bytes as a Kubernetes quantity in Mi, rounded up. */}}
{{- define "blockyard.mebibytes" -}}
{{- printf "%.0fMi" (ceil (divf (float64 .) 1048576.0)) -}}
{{- end -}}

{{/*
Memory of the three services in bytes, as YAML: what each needs for itself, and what its limit must be at least.
The pages of the arena are charged to whichever process writes them first. That is the offload-worker for what engines
store and what comes back from G3, and the remote-tier for what it loads from G4: each may come to carry all of it, but
both together never more than once. So each has it in its limit, and only the offload-worker in its request.
*/}}
{{- define "blockyard.memory" -}}
{{- $settings := .Values.settings -}}
{{- $block := float64 (include "blockyard.bytes" (list $settings.node.block_bytes "settings.node.block_bytes")) -}}
{{- $g2 := float64 (include "blockyard.bytes" (list $settings.g2.capacity "settings.g2.capacity")) -}}
{{- $g3 := 0.0 -}}
{{- if include "blockyard.on" $settings.g3.enabled -}}
{{- $g3 = float64 (include "blockyard.bytes" (list $settings.g3.capacity "settings.g3.capacity")) -}}
{{- end -}}
{{- $slots := divf (addf $g2 $g3) $block -}}
{{- /* A header for each block, and two pages at most beside them. */}}
{{- $arena := addf $g2 (mulf 256.0 (divf $g2 $block)) 8192.0 -}}
{{- range $component, $name := dict "blockManager" "block-manager" "offloadWorker" "offload-worker" "remoteTier" "remote-tier" }}
{{- $component := index $.Values $component }}
{{- $own := float64 (include "blockyard.bytes" (list $component.memory.base (printf "%s.memory.base" $name))) }}
{{- $own = addf $own (mulf (float64 $component.memory.perBlock) $slots) }}
{{ $name }}:
  own: {{ printf "%.0f" $own }}
  limit: {{ printf "%.0f" (ternary $own (addf $own $arena) (eq $name "block-manager")) }}
{{- end }}
{{- end -}}

{{/* "true" where a setting that may be written as text or as a boolean is on, else empty. */}}
{{- define "blockyard.on" -}}
{{- if has (. | toString | lower) (list "true" "1" "yes" "on" "y" "t") -}}true{{- end -}}
{{- end -}}
