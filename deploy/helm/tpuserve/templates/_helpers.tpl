{{- define "tpuserve.labels" -}}
app.kubernetes.io/name: tpuserve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Refuse flags with which Kubernetes' probes would fail. */}}
{{- define "tpuserve.checkFlags" -}}
{{- range .Values.flags }}
{{- if regexMatch "^--(rest_api_)?port(=|$)" . }}
{{- fail (printf "flags has %s, and the ports of the pod are 8500 and 8501. Set service.grpcPort and service.restPort, the ports for clients, instead." .) }}
{{- end }}
{{- end }}
{{- $flags := join " " .Values.flags }}
{{- if and (regexMatch "(^| )--api_keys_file" $flags) (not (regexMatch "(^| )--open_health( |=true|=1|$)" $flags)) }}
{{- fail "flags has --api_keys_file and no --open_health, and the probes of Kubernetes send no key. Add --open_health." }}
{{- end }}
{{- end }}

{{- /* The protocol of REST: "HTTP" or "HTTPS". */}}
{{- define "tpuserve.scheme" -}}
{{- regexMatch "(^| )--ssl_config_file" (join " " .Values.flags) | ternary "HTTPS" "HTTP" }}
{{- end }}
