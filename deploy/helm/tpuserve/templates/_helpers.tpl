{{- define "tpuserve.labels" -}}
app.kubernetes.io/name: tpuserve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
