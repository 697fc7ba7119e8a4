{{- define "labels" -}}
app.kubernetes.io/name: nvidia-device-plugin
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}
{{- define "place" -}}
serviceAccountName: {{ include "fullname" . }}-service-account
priorityClassName: {{ .Values.priorityClassName }}
terminationGracePeriodSeconds: 1
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- define "container" -}}
name: stand-in
image: triton-fleet.local/gpu-stand-in:1
imagePullPolicy: Never
env:
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - name: NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- with .Values.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
