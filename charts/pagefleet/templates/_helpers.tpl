{{- define "pagefleet.selector" -}}
app.kubernetes.io/name: pagefleet-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pagefleet.labels" -}}
{{ include "pagefleet.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: pagefleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
