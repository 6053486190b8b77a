{{/* The name of the application. */}}
{{- define "signer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of all objects: the release, followed by the name of the application unless the release has it. */}}
{{- define "signer.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "signer.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "signer.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "signer.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "signer.fullname" .) }}
{{- else }}
{{- required "serviceAccount.name must be set if serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The labels that select the pods. They never change, because a Deployment's selector cannot. */}}
{{- define "signer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "signer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of all objects. `app.kubernetes.io/managed-by` is missing because Helm adds it itself. */}}
{{- define "signer.labels" -}}
{{ include "signer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: node-attestation
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image: by digest if it is set. */}}
{{- define "signer.image" -}}
{{- with .Values.image }}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- end }}

{{/* JSON with the list of namespaces whose Secrets the signer may get; an empty list means all. */}}
{{- define "signer.secretNamespaces" -}}
{{- $namespaces := .Values.rbac.secretNamespaces }}
{{- if and .Values.watchNamespace (not $namespaces) }}
{{- $namespaces = list .Values.watchNamespace }}
{{- end }}
{{- toJson $namespaces }}
{{- end }}
