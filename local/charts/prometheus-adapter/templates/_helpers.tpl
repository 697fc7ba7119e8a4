{{- define "labels" -}}
app.kubernetes.io/name: prometheus-adapter
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: metrics
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The upstream's default rules, as far as they matter here: every series with a namespace, summed up. */}}
{{- define "config" -}}
{{- $rules := .Values.rules.custom }}
{{- if .Values.rules.default }}
{{- $every := dict
  "seriesQuery" "{namespace!=\"\",__name__!~\"^container_.*\"}"
  "resources" (dict "template" "<<.Resource>>")
  "metricsQuery" "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
}}
{{- $rules = prepend $rules $every }}
{{- end }}
rules: {{- toYaml $rules | nindent 2 }}
{{- end }}
