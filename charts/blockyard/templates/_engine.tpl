{{/* Sidecar: the engine's container, and the volume of its node's G3. */}}

{{- define "blockyard.engineContainer" -}}
{{- $engine := .Values.engine -}}
- name: engine
  {{- include "blockyard.containerFields" (list . $engine) | nindent 2 }}
  {{- with $engine.command }}
  command:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $engine.args }}
  args:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $engine.stdin }}
  stdin: true
  {{- end }}
  {{- with $engine.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $engine.ports }}
  ports:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" }}
  {{- with index $engine $probe }}
  {{ $probe }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  resources:
    {{- toYaml $engine.resources | nindent 4 }}
  volumeMounts:
    - name: state
      mountPath: /var/lib/blockyard
    - name: engine-tmp
      mountPath: /tmp
    {{- with $engine.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Size of the volume for G3: the slab has headers beside the payload, and file systems keep some room for themselves. */}}
{{- define "blockyard.g3VolumeSize" -}}
{{- if .Values.node.sidecar.g3.size -}}
{{- .Values.node.sidecar.g3.size -}}
{{- else -}}
{{- $capacity := float64 (include "blockyard.bytes" (list .Values.settings.g3.capacity "settings.g3.capacity")) -}}
{{- include "blockyard.mebibytes" (addf (mulf $capacity 1.1) 268435456.0) -}}
{{- end -}}
{{- end -}}
