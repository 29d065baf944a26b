{{/* What each worker is: its port, whether it is a member of a consumer group (and so has a stable
name), whether it uses the database, whether it makes spans of traces, and the port, if it has one, that
strangers send pings to, or that crawlers call. */}}
{{- define "freshet.kinds" -}}
ingester: {port: 6066, member: true, database: false, traces: true}
scheduler: {port: 6067, member: true, database: true, traces: true}
estimator: {port: 6068, member: true, database: true, traces: true}
coordinator: {port: 6069, member: false, database: true}
receiver: {port: 6071, member: false, database: true, pings: 6080}
poller: {port: 6072, member: false, database: true}
frontier: {port: 6073, member: false, database: true, fleet: 7071}
discoverer: {port: 6074, member: true, database: true}
{{- end }}

{{- define "freshet.name" -}}
{{ contains "freshet" .Release.Name | ternary .Release.Name (printf "%s-freshet" .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Labels that stay what they are: pods are selected by them. */}}
{{- define "freshet.selector" -}}
app.kubernetes.io/name: freshet
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "freshet.labels" -}}
{{ include "freshet.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* A setting's value as the environment has it: whole numbers without an exponent, lists as JSON. */}}
{{- define "freshet.text" -}}
{{- if kindIs "float64" . -}}
{{ eq (floor .) . | ternary (printf "%.0f" .) (toString .) }}
{{- else if or (kindIs "slice" .) (kindIs "map" .) -}}
{{ toJson . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end }}

{{/* Secrets that a pod gets, by setting, its worker's own before those of all. Only who uses the
database gets its address, only who shows what is in it the other user's, and only who sends spans
what the backend of traces asks for. */}}
{{- define "freshet.secrets" -}}
{{- $secrets := mergeOverwrite (deepCopy .root.Values.secrets) (deepCopy (.secrets | default dict)) -}}
{{- if hasKey $secrets "FRESHET_DATABASES" }}
{{- $own := .secrets | default dict }}
{{- if and .database (hasKey $own "DATABASE_URL") (not (hasKey $own "FRESHET_DATABASES")) }}
{{- fail (printf "%s has a DATABASE_URL of its own beside everybody's FRESHET_DATABASES, in which it would not count: give its secrets FRESHET_DATABASES instead" .component) }}
{{- end }}
{{- $secrets = omit $secrets "DATABASE_URL" }}
{{- end -}}
{{- if not .database }}{{ $secrets = omit $secrets "DATABASE_URL" "FRESHET_DATABASES" }}{{ end -}}
{{- if ne .component "coordinator" }}{{ $secrets = omit $secrets "FRESHET_VIEW_DATABASE_URL" "FRESHET_VIEW_DATABASES" }}{{ end -}}
{{- if not .traces }}{{ $secrets = omit $secrets "OTEL_EXPORTER_OTLP_HEADERS" "OTEL_EXPORTER_OTLP_TRACES_HEADERS" }}{{ end -}}
{{ toYaml $secrets }}
{{- end }}

{{/* Settings that the chart gives by itself, as its ports, probes and services go by them: what to
set instead. */}}
{{- define "freshet.given" -}}
FRESHET_PARTITIONS: set shards
FRESHET_REPLICATION_FACTOR: set kafka.replicationFactor
FRESHET_KAFKA_BOOTSTRAP_SERVERS: set kafka.bootstrapServers
FRESHET_INSTANCE: it is the name of each pod
FRESHET_HTTP_PORT: the probes and the services go by the port that is there
FRESHET_RECEIVER_PORT: the service of the receiver goes by the port that is there
FRESHET_FRONTIER_PORT: the service of the frontier goes by the port that is there
{{- end }}

{{- define "freshet.environment" -}}
{{- $values := .root.Values -}}
{{- range $name, $instead := include "freshet.given" . | fromYaml }}
{{- if or (hasKey $values.settings $name) (hasKey $.settings $name) }}
{{- fail (printf "%s cannot stand under settings: %s" $name $instead) }}
{{- end }}
{{- end -}}
{{- range list $values.settings .settings }}
{{- if not (has (get . "FRESHET_HTTP_HOST" | default "0.0.0.0") (list "0.0.0.0" "::")) }}
{{- fail "FRESHET_HTTP_HOST must be 0.0.0.0, or :: where addresses are of IPv6: the probes and the services come to the pod's own address" }}
{{- end }}
{{- end -}}
{{- $all := dict "KAFKA_BOOTSTRAP_SERVERS" $values.kafka.bootstrapServers "FRESHET_PARTITIONS" $values.shards "FRESHET_REPLICATION_FACTOR" $values.kafka.replicationFactor "FRESHET_HTTP_HOST" "0.0.0.0" "FRESHET_LOG_FORMAT" "json" -}}
{{- with $values.kafka.tls }}{{ if .secret }}
{{- /* Without it nothing would look at the certificates. */}}
{{- $_ := set $all "FRESHET_KAFKA_SECURITY_PROTOCOL" "SSL" }}
{{- $_ := set $all "FRESHET_KAFKA_SSL_CAFILE" "/run/freshet/kafka-tls/ca.crt" }}
{{- if .clientCertificate }}
{{- $_ := set $all "FRESHET_KAFKA_SSL_CERTFILE" "/run/freshet/kafka-tls/tls.crt" }}
{{- $_ := set $all "FRESHET_KAFKA_SSL_KEYFILE" "/run/freshet/kafka-tls/tls.key" }}
{{- end }}{{ end }}{{ end }}
{{- $tls := ($values.database).tls | default dict }}
{{- if and .database $tls.secret }}
{{- /* libpq's own: what the URL says goes before it. */}}
{{- $_ := set $all "PGSSLROOTCERT" "/run/freshet/database-tls/ca.crt" }}
{{- if $tls.clientCertificate }}
{{- $_ := set $all "PGSSLCERT" "/run/freshet/database-tls/tls.crt" }}
{{- $_ := set $all "PGSSLKEY" "/run/freshet/database-tls/tls.key" }}
{{- end }}{{ end }}
{{- if and (has .component (list "coordinator" "commands")) $values.workers.scheduler.enabled }}
{{- /* A headless service: its name stands for all pods. */}}
{{- $_ := set $all "FRESHET_SCHEDULER_URLS" (printf "http://%s-scheduler:6067" (include "freshet.name" .root)) }}
{{- end }}
{{- if and (eq .component "commands") $values.workers.coordinator.enabled }}
{{- $_ := set $all "COORDINATOR_URL" (printf "http://%s-coordinator:6069" (include "freshet.name" .root)) }}
{{- end }}
{{- $all = mergeOverwrite $all (deepCopy $values.settings) (deepCopy .settings) -}}
{{- range $name, $from := include "freshet.secrets" . | fromYaml }}
{{- $_ := set $all (printf "%s_FILE" $name) (printf "/run/freshet/%s/%s" (lower $name | replace "_" "-") $from.key) }}
{{- end }}
{{- range $name, $value := $all }}
- name: {{ $name }}
  value: {{ include "freshet.text" $value | quote }}
{{- end }}
{{- /* The name of the pod. A StatefulSet's stays the same, however it is restarted or scaled: it is
the static membership (group.instance.id), by which a worker keeps its shards. */}}
- name: FRESHET_INSTANCE
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}

{{- define "freshet.mounts" -}}
{{/* Kernels that the image does not have: commands compile some of their own. */ -}}
- {name: kernels, mountPath: /var/cache/freshet}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.kafka.tls.secret }}
- {name: kafka-tls, mountPath: /run/freshet/kafka-tls, readOnly: true}
{{- end }}
{{- if and .database ((.root.Values.database).tls).secret }}
- {name: database-tls, mountPath: /run/freshet/database-tls, readOnly: true}
{{- end }}
{{- range $name, $_ := include "freshet.secrets" . | fromYaml }}
{{- $short := lower $name | replace "_" "-" }}
- {name: {{ $short }}, mountPath: /run/freshet/{{ $short }}, readOnly: true}
{{- end }}
{{- with (include "freshet.own" . | fromYaml).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "freshet.volumes" -}}
- {name: kernels, emptyDir: {sizeLimit: 1Gi}}
- {name: tmp, emptyDir: {sizeLimit: 1Gi}}
{{- with .root.Values.kafka.tls.secret }}
- {name: kafka-tls, secret: {secretName: {{ quote . }}, defaultMode: 0440}}
{{- end }}
{{- if and .database ((.root.Values.database).tls).secret }}
- {name: database-tls, secret: {secretName: {{ quote .root.Values.database.tls.secret }}, defaultMode: 0440}}
{{- end }}
{{- range $name, $from := include "freshet.secrets" . | fromYaml }}
- {name: {{ lower $name | replace "_" "-" }}, secret: {secretName: {{ quote $from.secret }}, defaultMode: 0440, items: [{key: {{ quote $from.key }}, path: {{ quote $from.key }}}]}}
{{- end }}
{{- with (include "freshet.own" . | fromYaml).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What values say of pods: of a worker, the migration or the commands, what stands under it, in place of what
stands for all. Values of a release of before may lack some of it. */}}
{{- define "freshet.own" -}}
{{- $own := dict -}}
{{- range list "priorityClassName" "serviceAccountName" "automountServiceAccountToken" "nodeSelector" "tolerations" "affinity" "extraVolumes" "extraVolumeMounts" -}}
{{- $_ := set $own . (index (hasKey $.values . | ternary $.values $.root.Values) .) -}}
{{- end -}}
{{ toYaml $own }}
{{- end }}

{{/* Of every pod: a plain user, and nothing that it need not have. */}}
{{- define "freshet.pod" -}}
{{- $own := include "freshet.own" . | fromYaml -}}
# Service variables (FRESHET_..._PORT) would be taken for settings.
enableServiceLinks: false
automountServiceAccountToken: {{ $own.automountServiceAccountToken | default false }}
{{- with $own.serviceAccountName }}
serviceAccountName: {{ quote . }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "freshet.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
