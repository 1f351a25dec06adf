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
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: NODE_SOCKET
      value: /var/lib/blockyard/block-manager/channel.sock
    - name: NODE_BLOCK_BYTES
      value: {{ include "blockyard.bytes" (list .Values.settings.node.block_bytes "settings.node.block_bytes") | quote }}
    {{- with $engine.env }}
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

{{/* Bytes of the slab file: a page for each block beside its payload, and room at both ends. */}}
{{- define "blockyard.slabBytes" -}}
{{- $capacity := float64 (include "blockyard.bytes" (list .Values.settings.g3.capacity "settings.g3.capacity")) -}}
{{- $block := float64 (include "blockyard.bytes" (list .Values.settings.node.block_bytes "settings.node.block_bytes")) -}}
{{- printf "%.0f" (addf $capacity (mulf 4096.0 (divf $capacity $block)) 4194304.0) -}}
{{- end -}}

{{/* Size of the volume for G3: the slab, and what file systems keep for themselves. */}}
{{- define "blockyard.g3VolumeSize" -}}
{{- if .Values.node.sidecar.g3.size -}}
{{- .Values.node.sidecar.g3.size -}}
{{- else -}}
{{- include "blockyard.mebibytes" (addf (mulf (float64 (include "blockyard.slabBytes" .)) 1.1) 268435456.0) -}}
{{- end -}}
{{- end -}}
