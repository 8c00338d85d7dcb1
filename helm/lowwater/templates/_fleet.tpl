{{/* The fleet's config, as shared/lowwater/runtime/config.py reads it. Checks that the schema of the values cannot express are done here. */}}

{{- define "lowwater.listen" -}}
{{- dict "host" "0.0.0.0" "port" 8080 | toJson -}}
{{- end -}}

{{/* (where, name, mapping): a secret as plain text is refused before it is in a ConfigMap */}}
{{- define "lowwater.noSecrets" -}}
{{- $where := index . 0 -}}
{{- range $name, $value := index . 1 -}}
{{- if kindIs "map" $value -}}
{{- include "lowwater.noSecrets" (list (printf "%s.%s" $where $name) $value) -}}
{{- else if and (kindIs "string" $value) (regexMatch "(?i)(password|secret|token|hash_key|account_key|access_key$|sas_key)" $name) (not (regexMatch "(\\.location|_file|\\.url|\\.uri|^existingSecret)$" $name)) -}}
{{- if and $value (not (regexMatch "^\\$\\{(env|file):[^}]+\\}$" $value)) -}}
{{- fail (printf "%s.%s holds a secret: write ${env:NAME} there, and put NAME into a Secret that existingSecret names" $where $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowwater.source" -}}
{{- $name := index . 0 -}}
{{- $source := index . 1 -}}
{{- include "lowwater.noSecrets" (list (printf "sources.%s.config" $name) (default dict $source.config)) -}}
{{- $http := dict "http" (include "lowwater.listen" . | fromJson) -}}
{{- mustMergeOverwrite (deepCopy (default dict $source.settings)) (dict "kind" $source.kind "config" (default dict $source.config)) $http | toJson -}}
{{- end -}}

{{- define "lowwater.group" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $group := index . 2 -}}
{{- $http := dict "http" (include "lowwater.listen" . | fromJson) -}}
{{- $made := mustMergeOverwrite (deepCopy (default dict $group.settings)) (dict "sources" $group.sources) $http -}}
{{- with $group.lake -}}
{{- include "lowwater.noSecrets" (list (printf "groups.%s.lake.options" $name) (default dict .options)) -}}
{{- $_ := set $made "lake" (mustMergeOverwrite (deepCopy (default dict .settings)) (dict "uri" .uri "options" (default dict .options))) -}}
{{- $spark := include "lowwater.spark" (list $root $name $group) | fromJson -}}
{{- $land := mustMergeOverwrite (deepCopy (default dict $group.land)) (deepCopy $http) (dict "spark" $spark) -}}
{{- $_ := set $made "land" $land -}}
{{- end -}}
{{- $made | toJson -}}
{{- end -}}

{{/* (root, group's name, group): Spark's settings */}}
{{- define "lowwater.spark" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values.landing -}}
{{- $driver := include "lowwater.objectName" (list $root "spark" (index . 1)) -}}
{{- $made := dict "spark.driver.memory" $values.driverMemory "spark.local.dir" "/var/lib/lowwater/spark" -}}
{{- if $values.servlet -}}
{{- $_ := merge $made (dict
  "spark.ui.enabled" "true"
  "spark.ui.port" "4040"
  "spark.ui.prometheus.enabled" "true"
  "spark.metrics.namespace" "lowwater"
  "spark.metrics.conf.*.sink.prometheusServlet.class" "org.apache.spark.metrics.sink.PrometheusServlet"
  "spark.metrics.conf.*.sink.prometheusServlet.path" "/metrics/prometheus"
  "spark.metrics.conf.*.source.jvm.class" "org.apache.spark.metrics.source.JvmSource"
  "spark.sql.streaming.metricsEnabled" "true") -}}
{{- end -}}
{{- if ne $values.mode "local" -}}
{{- $_ := merge $made (dict
  "spark.master" "k8s://https://kubernetes.default.svc:443"
  "spark.executor.memory" $values.executors.memory
  "spark.executor.memoryOverhead" $values.executors.memoryOverhead
  "spark.executor.cores" (toString $values.executors.cores)
  "spark.executor.instances" (toString $values.executors.instances)) -}}
{{- end -}}
{{- if eq $values.mode "cluster" -}}
{{- $_ := merge $made (dict
  "spark.driver.host" (printf "%s.%s.svc" $driver $root.Release.Namespace)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.kubernetes.namespace" $root.Release.Namespace
  "spark.kubernetes.container.image" (include "lowwater.image" (list $root "spark"))
  "spark.kubernetes.container.image.pullPolicy" $root.Values.image.pullPolicy
  "spark.kubernetes.authenticate.serviceAccountName" (printf "%s-spark" (include "lowwater.fullname" $root))
  "spark.kubernetes.executor.podNamePrefix" ($driver | trunc 45 | trimSuffix "-")
  "spark.kubernetes.executor.podTemplateFile" (printf "/etc/lowwater/executor-%s.yaml" (index . 1))) -}}
{{- end -}}
{{- mustMergeOverwrite $made (deepCopy $values.spark) (deepCopy (default dict (index . 2).spark)) | toJson -}}
{{- end -}}

{{/* (pattern, where, value, message): a pattern check with a readable message instead of the schema's pattern */}}
{{- define "lowwater.mustMatch" -}}
{{- if and (index . 2) (not (regexMatch (index . 0) (index . 2))) -}}
{{- fail (printf "%s is %q: %s" (index . 1) (index . 2) (index . 3)) -}}
{{- end -}}
{{- end -}}

{{- define "lowwater.checkWords" -}}
{{- $size := "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" -}}
{{- $sizeWords := "a size is written as 20Gi" -}}
{{- $memory := "^[0-9]+[kmgt]$" -}}
{{- $memoryWords := "memory of a JVM is written as 2g" -}}
{{- $name := "^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$" -}}
{{- $nameWords := "a name has lower-case letters, digits, - and _, at most 63, and begins and ends with a letter or a digit" -}}
{{- with .Values -}}
{{- include "lowwater.mustMatch" (list "^[^:,\\s]+:[0-9]+(,[^:,\\s]+:[0-9]+)*$" "kafka.bootstrapServers" .kafka.bootstrapServers "give the brokers as host:port,host:port") -}}
{{- include "lowwater.mustMatch" (list $size "extractor.spillSize" .extractor.spillSize $sizeWords) -}}
{{- include "lowwater.mustMatch" (list $size "merger.spoolSize" .merger.spoolSize $sizeWords) -}}
{{- include "lowwater.mustMatch" (list $size "landing.scratchSize" .landing.scratchSize $sizeWords) -}}
{{- include "lowwater.mustMatch" (list $memory "landing.driverMemory" .landing.driverMemory $memoryWords) -}}
{{- include "lowwater.mustMatch" (list $memory "landing.executors.memory" .landing.executors.memory $memoryWords) -}}
{{- include "lowwater.mustMatch" (list $memory "landing.executors.memoryOverhead" .landing.executors.memoryOverhead $memoryWords) -}}
{{- range $key, $source := .sources -}}
{{- include "lowwater.mustMatch" (list $name (printf "the name of source %s" $key) $key $nameWords) -}}
{{- include "lowwater.mustMatch" (list $size (printf "sources.%s.spillSize" $key) $source.spillSize $sizeWords) -}}
{{- end -}}
{{- range $key, $group := .groups -}}
{{- include "lowwater.mustMatch" (list $name (printf "the name of group %s" $key) $key $nameWords) -}}
{{- include "lowwater.mustMatch" (list $size (printf "groups.%s.spoolSize" $key) $group.spoolSize $sizeWords) -}}
{{- with $group.lake -}}
{{- include "lowwater.mustMatch" (list "^(/|s3://|gs://|az://)" (printf "groups.%s.lake.uri" $key) .uri "a lake is s3://bucket/prefix, gs://…, az://…, or a directory from / on, with a volume") -}}
{{- with .persistence -}}
{{- include "lowwater.mustMatch" (list $size (printf "groups.%s.lake.persistence.size" $key) .size $sizeWords) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowwater.check" -}}
{{- if not .Values.kafka.bootstrapServers -}}
{{- fail "kafka.bootstrapServers is empty: give the brokers as host:port,host:port" -}}
{{- end -}}
{{- include "lowwater.checkWords" . -}}
{{- include "lowwater.noSecrets" (list "kafka.client" .Values.kafka.client) -}}
{{- $root := . -}}
{{- $taken := dict -}}
{{- range $group, $of := .Values.groups -}}
{{- range $of.sources -}}
{{- if not (hasKey $root.Values.sources .) -}}
{{- fail (printf "groups.%s.sources names %s, which is not under sources" $group .) -}}
{{- end -}}
{{- if hasKey $taken . -}}
{{- fail (printf "source %s is in the groups %s and %s: it can be in one, because a merger deletes the changes that it has released" . (get $taken .) $group) -}}
{{- end -}}
{{- $_ := set $taken . $group -}}
{{- end -}}
{{- if and $of.lake (ne $root.Values.landing.mode "local") -}}
{{- if and (hasPrefix "/" $of.lake.uri) (not (and $of.lake.persistence (or $of.lake.persistence.existingClaim (has "ReadWriteMany" (default list $of.lake.persistence.accessModes))))) -}}
{{- fail (printf "groups.%s.lake.uri is a directory, and landing.mode %s has executors on other nodes: use an object store (s3://…), or a ReadWriteMany volume under lake.persistence" $group $root.Values.landing.mode) -}}
{{- end -}}
{{- end -}}
{{- if and $of.lake (hasPrefix "/" $of.lake.uri) (not $of.lake.persistence) -}}
{{- fail (printf "groups.%s.lake.uri is a directory: give it a volume under lake.persistence, or the lake is gone with its pod" $group) -}}
{{- end -}}
{{- end -}}
{{- if .Values.control.enabled -}}
{{- if not (and .Values.control.tokens .Values.control.existingSecret) -}}
{{- fail "control.tokens and control.existingSecret are needed: whoever reaches the API can operate the fleet. Create a Secret with a token, name its key under control.tokens, or set control.enabled=false" -}}
{{- end -}}
{{- else if .Values.ingress.enabled -}}
{{- fail "ingress.enabled leads to the control service, and control.enabled is false" -}}
{{- end -}}
{{- if and (or .Values.strimzi.topics.enabled .Values.strimzi.user.enabled) (not .Values.strimzi.cluster) -}}
{{- fail "strimzi.cluster is empty: give the name of the Kafka object" -}}
{{- end -}}
{{- end -}}

{{/* (fleet, group): the settings of its sources */}}
{{- define "lowwater.sourcesOf" -}}
{{- $made := dict -}}
{{- $fleet := index . 0 -}}
{{- range (index . 1).sources -}}
{{- $_ := set $made . (get $fleet.sources .) -}}
{{- end -}}
{{- $made | toJson -}}
{{- end -}}

{{/* the whole config, as JSON */}}
{{- define "lowwater.fleet" -}}
{{- include "lowwater.check" . -}}
{{- $root := . -}}
{{- $kafka := dict "bootstrap_servers" .Values.kafka.bootstrapServers "replication" .Values.kafka.replication "min_insync_replicas" .Values.kafka.minInsyncReplicas "compression" .Values.kafka.compression "client" .Values.kafka.client -}}
{{- $sources := dict -}}
{{- range $name, $source := .Values.sources -}}
{{- $_ := set $sources $name (include "lowwater.source" (list $name $source) | fromJson) -}}
{{- end -}}
{{- $groups := dict -}}
{{- range $name, $group := .Values.groups -}}
{{- $_ := set $groups $name (include "lowwater.group" (list $root $name $group) | fromJson) -}}
{{- end -}}
{{- $made := dict "kafka" $kafka "sources" $sources "groups" $groups "log_format" .Values.logFormat "log_level" .Values.logLevel "state_directory" "/var/lib/lowwater" -}}
{{- with .Values.schemaRegistry -}}
{{- if .url -}}
{{- $_ := set $made "schema_registry" (dict "url" .url "username" .username "password" (ternary "${env:LOWWATER_REGISTRY_PASSWORD}" "" (ne .existingSecret ""))) -}}
{{- end -}}
{{- end -}}
{{- if .Values.control.enabled -}}
{{- $tokens := list -}}
{{- range .Values.control.tokens -}}
{{- $tokens = append $tokens (dict "name" .name "role" .role "token" (printf "${file:/etc/lowwater-tokens/%s}" .secretKey)) -}}
{{- end -}}
{{- $_ := set $made "control" (dict "host" "0.0.0.0" "port" 8080 "tokens" $tokens) -}}
{{- end -}}
{{- $made | toJson -}}
{{- end -}}
