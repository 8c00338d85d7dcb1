{{/* (root, group): the secrets that Spark's driver and its executors need: the lake's, and the databases' for copies */}}
{{- define "lowwater.landSecrets" -}}
{{- $root := index . 0 -}}
{{- $group := index . 1 -}}
{{- $names := list $group.lake.existingSecret -}}
{{- range $group.sources -}}
{{- $names = append $names (index $root.Values.sources .).existingSecret -}}
{{- end -}}
{{- dict "names" ($names | compact | uniq) | toJson -}}
{{- end -}}

{{- define "lowwater.lakeMounts" -}}
{{- $lake := (index . 1).lake -}}
{{- $mounts := list -}}
{{- if $lake.persistence -}}
{{- $mounts = append $mounts (dict "name" "lake" "mountPath" $lake.uri) -}}
{{- end -}}
{{- dict "mounts" $mounts | toJson -}}
{{- end -}}

{{/* (root, name, group) */}}
{{- define "lowwater.lakeVolumes" -}}
{{- $root := index . 0 -}}
{{- $lake := (index . 2).lake -}}
{{- $volumes := list -}}
{{- if $lake.persistence -}}
{{- $claim := default (include "lowwater.objectName" (list $root "lake" (index . 1))) $lake.persistence.existingClaim -}}
{{- $volumes = append $volumes (dict "name" "lake" "persistentVolumeClaim" (dict "claimName" $claim)) -}}
{{- end -}}
{{- dict "volumes" $volumes | toJson -}}
{{- end -}}

{{/* (root, name, group): the pod template of Spark's executors */}}
{{- define "lowwater.executorTemplate" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $group := index . 2 -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "lowwater.labels" (list $root "executor") | nindent 4 }}
    lowwater/group: {{ $name }}
spec:
  {{- include "lowwater.pod" (list $root $root.Values.landing) | nindent 2 }}
  containers:
    - name: executor
      {{- include "lowwater.env" (list $root $root.Values.landing.extraEnv) | nindent 6 }}
      {{- include "lowwater.envFrom" (list $root (include "lowwater.landSecrets" (list $root $group) | fromJson).names) | nindent 6 }}
      {{- include "lowwater.mounts" (list $root (include "lowwater.lakeMounts" (list $root $group) | fromJson).mounts) | nindent 6 }}
      securityContext: {{- toYaml $root.Values.securityContext | nindent 8 }}
  {{- include "lowwater.volumes" (list $root $root.Values.landing.scratchSize (include "lowwater.lakeVolumes" (list $root $name $group) | fromJson).volumes) | nindent 2 }}
{{- end -}}
