{{- define "mdserver.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}

{{- define "mdserver.labels" -}}
app.kubernetes.io/name: mdserver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mdserver.seedAddresses" -}}
{{- $name := include "mdserver.name" . -}}
{{- $addresses := list -}}
{{- range $number := until (int .Values.seeds.count) -}}
{{- $addresses = append $addresses (printf "%s-seed-%d.%s-peers.%s.svc:8900" $name $number $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end }}

{{- /* The pod of a seed or of another member; `role` says which. */ -}}
{{- define "mdserver.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "mdserver.labels" .root | nindent 4 }}
    mdserver/role: {{ .role }}
  annotations:
    checksum/config: {{ toJson $values.config | sha256sum }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 8800
    runAsGroup: 8800
    fsGroup: 8800
    seccompProfile: {type: RuntimeDefault}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "mdserver.labels" .root | nindent 16 }}
                mdserver/role: {{ .role }}
  containers:
    - name: mdserver
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [run, --config, /etc/mdserver/mdserver.conf]
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: MDSERVER_NODENAME
          value: $(POD_NAME)
        - name: MDSERVER_CLUSTERMEMBERLISTEN
          value: {{ if eq .role "seed" }}$(POD_NAME).{{ include "mdserver.name" .root }}-peers.{{ .root.Release.Namespace }}.svc:8900{{ else }}$(POD_IP):8900{{ end }}
        - name: MDSERVER_CLIENTADDRESS
          value: {{ $values.clientAddress | default "$(POD_IP):8800" | quote }}
        - name: MDSERVER_CLUSTERPASSWORD
          valueFrom: {secretKeyRef: {name: {{ $values.clusterPasswordSecret }}, key: password}}
        # The image has this one in its environment, which goes before the file.
        - name: MDSERVER_MONITORHTTP_LISTEN
          value: "*:4000"
        - name: MDSERVER_MONITORUSERNAME
          valueFrom: {secretKeyRef: {name: {{ $values.monitorSecret }}, key: username}}
        - name: MDSERVER_MONITORPASSWORD
          valueFrom: {secretKeyRef: {name: {{ $values.monitorSecret }}, key: password}}
        {{- range $values.secretEnvironment }}
        - name: {{ .name }}
          valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
        {{- end }}
      ports:
        - {name: clients, containerPort: 8800}
        - {name: monitor, containerPort: 4000}
        - {name: peers, containerPort: 8900}
      # A cluster that starts has no quorum for a while: only readiness waits for that.
      startupProbe:
        httpGet: {path: /health/live, port: clients}
        periodSeconds: 1
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /health/live, port: clients}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /health/ready, port: clients}
        periodSeconds: 2
        timeoutSeconds: 2
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{ toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/mdserver, readOnly: true}
        - {name: data, mountPath: /var/lib/mdserver}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: config
      configMap: {name: {{ include "mdserver.name" .root }}}
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 16Mi}
    {{- if ne .role "seed" }}
    - name: data
      emptyDir: {}
    {{- end }}
{{- end }}
