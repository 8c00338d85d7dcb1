{{- define "lowwater.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lowwater.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "lowwater.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "lowwater.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* (root, component, name): the name of an object. Different names stay different: a name that is changed or truncated gets a hash */}}
{{- define "lowwater.objectName" -}}
{{- $root := index . 0 -}}
{{- $plain := printf "%s-%s-%s" (include "lowwater.fullname" $root) (index . 1) (index . 2) -}}
{{- $clean := replace "_" "-" $plain -}}
{{- if or (ne $plain $clean) (gt (len $clean) 63) -}}
{{- printf "%s-%s" ($clean | trunc 56 | trimSuffix "-") (sha256sum $plain | trunc 6) -}}
{{- else -}}
{{- $clean -}}
{{- end -}}
{{- end -}}

{{/* (root, component): selector labels; app.kubernetes.io/name is the same for objects of the runner */}}
{{- define "lowwater.selector" -}}
app.kubernetes.io/name: lowwater
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "lowwater.labels" -}}
{{- $root := index . 0 -}}
{{ include "lowwater.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: lowwater
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* labels of pods: none that changes with the chart's version, otherwise each upgrade would restart all pods */}}
{{- define "lowwater.podLabels" -}}
{{ include "lowwater.selector" . }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lowwater.image" -}}
{{- $root := index . 0 -}}
{{- include "lowwater.imageOf" (list $root (index $root.Values.image.repositories (index . 1))) -}}
{{- end -}}

{{/* (root, repository) */}}
{{- define "lowwater.imageOf" -}}
{{- $root := index . 0 -}}
{{- printf "%s%s:%s" $root.Values.image.registry (index . 1) (default $root.Chart.AppVersion $root.Values.image.tag) -}}
{{- end -}}

{{- define "lowwater.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lowwater.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* (root, spec of a pod's parent): fields of every pod */}}
{{- define "lowwater.pod" -}}
{{- $root := index . 0 -}}
{{- $of := index . 1 -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (root, names of secrets): their keys as environment variables, Kafka's first, each secret once */}}
{{- define "lowwater.envFrom" -}}
{{- $root := index . 0 -}}
{{- $names := prepend (index . 1) $root.Values.kafka.existingSecret | compact | uniq -}}
{{- if $names }}
envFrom:
  {{- range $names }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end -}}

{{/* (root, extra variables) */}}
{{- define "lowwater.env" -}}
{{- $root := index . 0 -}}
env:
  - {name: LOWWATER_CONFIG, value: /etc/lowwater/fleet.yaml}
  # spill files go to the volume, not to the container's own file system
  - {name: TMPDIR, value: /var/lib/lowwater}
  - {name: HOME, value: /var/lib/lowwater}
  {{- if and $root.Values.schemaRegistry.url $root.Values.schemaRegistry.existingSecret }}
  - name: LOWWATER_REGISTRY_PASSWORD
    valueFrom:
      secretKeyRef: {name: {{ $root.Values.schemaRegistry.existingSecret }}, key: {{ $root.Values.schemaRegistry.passwordKey }}}
  {{- end }}
  {{- with index . 1 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* (root, extra mounts) */}}
{{- define "lowwater.mounts" -}}
{{- $root := index . 0 -}}
volumeMounts:
  - {name: config, mountPath: /etc/lowwater, readOnly: true}
  - {name: work, mountPath: /var/lib/lowwater}
  - {name: tmp, mountPath: /tmp}
  {{- if $root.Values.kafka.tlsSecret }}
  - {name: kafka-tls, mountPath: /etc/lowwater-kafka, readOnly: true}
  {{- end }}
  {{- with index . 1 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* (root, size of the work volume, extra volumes) */}}
{{- define "lowwater.volumes" -}}
{{- $root := index . 0 -}}
volumes:
  - name: config
    configMap: {name: {{ include "lowwater.fullname" $root }}}
  - name: work
    emptyDir: {sizeLimit: {{ index . 1 }}}
  - name: tmp
    emptyDir: {sizeLimit: 256Mi}
  {{- if $root.Values.kafka.tlsSecret }}
  - name: kafka-tls
    secret: {secretName: {{ $root.Values.kafka.tlsSecret }}, defaultMode: 0440}
  {{- end }}
  {{- with index . 2 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* probes from the health endpoints; /health/live fails once the main loop has been blocked for two minutes */}}
{{- define "lowwater.probes" -}}
startupProbe:
  httpGet: {path: /health/live, port: http}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /health/live, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /health/ready, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* Fails if the alerts and dashboards are missing: they are added when the chart is packaged. Arguments: root, value */}}
{{- define "lowwater.packaged" -}}
{{- if not ((index . 0).Files.Get "files/rules.yaml") }}
{{- fail (printf "%s: the alerts and dashboards are in the packaged chart only: run `make chart` and install dist/lowwater-%s.tgz" (index . 1) (index . 0).Chart.Version) }}
{{- end }}
{{- end }}
