{{/* What the three bundled servers have in common: one replica, one volume, one port for clients. */}}

{{/* Service of a server. Call with (list $ "component" port). */}}
{{- define "blockyard.serverService" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "blockyard.fullname" $root }}-{{ $component }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "blockyard.labels" (list $root $component) | nindent 4 }}
spec:
  type: ClusterIP
  selector:
    {{- include "blockyard.selector" (list $root $component) | nindent 4 }}
  ports:
    - name: {{ $component }}
      port: {{ index . 2 }}
      targetPort: {{ $component }}
{{- end -}}

{{/* Head of the StatefulSet of a server, up to its containers. Call with (list $ "component" values annotations). */}}
{{- define "blockyard.serverHead" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index . 2 -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ include "blockyard.fullname" $root }}-{{ $component }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "blockyard.labels" (list $root $component) | nindent 4 }}
spec:
  replicas: 1
  serviceName: {{ include "blockyard.fullname" $root }}-{{ $component }}
  selector:
    matchLabels:
      {{- include "blockyard.selector" (list $root $component) | nindent 6 }}
  {{- if $values.persistence.enabled }}
  volumeClaimTemplates:
    - metadata:
        name: data
        labels:
          {{- include "blockyard.selector" (list $root $component) | nindent 10 }}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $values.persistence.storageClassName }}
        storageClassName: {{ . | quote }}
        {{- end }}
        resources:
          requests:
            storage: {{ $values.persistence.size }}
  {{- end }}
  template:
    metadata:
      {{- include "blockyard.podMetadata" (list $root $values $component (index . 3)) | nindent 6 }}
    spec:
      {{- include "blockyard.podFields" (list $root $values) | nindent 6 }}
      terminationGracePeriodSeconds: 30
{{- end -}}

{{/* Volumes of a server's pod. Call with (list $ values). */}}
{{- define "blockyard.serverVolumes" -}}
{{- $values := index . 1 -}}
{{- if not $values.persistence.enabled }}
- name: data
  emptyDir:
    sizeLimit: {{ $values.persistence.size }}
{{- end }}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: 64Mi
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Memory at which a Go program collects harder, well below its limit. Call with (list resources "path of the values"). */}}
{{- define "blockyard.goMemory" -}}
{{- $limit := include "blockyard.bytes" (list (index . 0).limits.memory (printf "%s.resources.limits.memory" (index . 1))) -}}
- name: GOMEMLIMIT
  value: {{ printf "%.0f" (mulf 0.6 (float64 $limit)) | quote }}
{{- end -}}
