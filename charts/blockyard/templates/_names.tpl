{{/* Names and labels. Short enough that every name made from them fits into 63 characters. */}}

{{- define "blockyard.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "blockyard.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "blockyard.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "blockyard.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "blockyard.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a component. Call with (list $ "component"). */}}
{{- define "blockyard.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "blockyard.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels of an object of a component. Call with (list $ "component"). */}}
{{- define "blockyard.labels" -}}
{{- $root := index . 0 -}}
{{ include "blockyard.selector" . }}
app.kubernetes.io/part-of: blockyard
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Reference of an image. Call with (list $ image); without a tag it is the version of the chart's application. */}}
{{- define "blockyard.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}
