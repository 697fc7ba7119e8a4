{{/* Names as the upstream chart makes them. */}}
{{- define "full" -}}
{{- $long := .Release.Name }}
{{- if not (contains "kube-prometheus-stack" .Release.Name) }}{{ $long = printf "%s-kube-prometheus-stack" .Release.Name }}{{ end }}
{{- $long | trunc 26 | trimSuffix "-" }}
{{- end }}

{{- define "labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: kube-prometheus-stack
release: {{ .Release.Name | quote }}
{{- end }}

{{/* What every pod of this chart has. */}}
{{- define "restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "placed" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A program that answers a scrape with nothing, in place of one that cannot be had here. */}}
{{- define "silent" -}}
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Silent(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"# a stand-in measures nothing\n")
    def log_message(self, *_): pass
ThreadingHTTPServer(("", {{ . }}), Silent).serve_forever()
{{- end }}
