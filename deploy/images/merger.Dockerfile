# The merger. From the top of the repository:
#   docker build -f deploy/images/merger.Dockerfile -t lowwater/merger .
# BASE: any Debian from 12 on, also one that no registry has (deploy/images/build.sh); packages come from PyPI, as uv.lock has them.
ARG BASE=docker.io/library/debian:12.11-slim

# ---- the base of both stages
# hadolint ignore=DL3006
FROM ${BASE} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*

# ---- the packages of uv.lock, in /opt/lowwater
FROM base AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
# the system's certificates: those of a proxy are in BASE
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
WORKDIR /build
COPY uv.lock ./
RUN python3 -m venv /opt/uv \
    && version="$(sed -n '/^name = "uv"$/{n;s/^version = "\(.*\)"$/\1/p;}' uv.lock)" \
    && /opt/uv/bin/pip install --no-cache-dir "uv==$version"
COPY pyproject.toml ./
COPY shared ./shared
COPY services ./services
COPY spark ./spark
# a member of the workspace, not in the image
COPY devkit ./devkit
ENV UV_PROJECT_ENVIRONMENT=/opt/lowwater UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
RUN /opt/uv/bin/uv sync --frozen --no-dev --no-editable --python /usr/bin/python3 --package lowwater-merger \
    && find /opt/lowwater -depth -name tests -type d -exec rm -rf {} +
RUN /opt/uv/bin/uv export --quiet --preview-features sbom-export --frozen --no-dev --format cyclonedx1.5 \
        --package lowwater-merger --output-file /opt/lowwater/sbom.json

# ---- the image
FROM base
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lowwater merger" \
      org.opencontainers.image.description="assembles transactions, applies the watermark, releases them in one order" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 lowwater \
    && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /var/lib/lowwater lowwater \
    && install -d -o 10001 -g 10001 /var/lib/lowwater /var/lib/lake /var/lib/sources /etc/lowwater
COPY --from=build /opt/lowwater /opt/lowwater
COPY deploy/images/healthy.py /opt/lowwater/bin/healthy.py
ENV PATH=/opt/lowwater/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TMPDIR=/var/lib/lowwater \
    LOWWATER_CONFIG=/etc/lowwater/fleet.yaml
WORKDIR /var/lib/lowwater
USER 10001:10001
EXPOSE 8080
# no other directory is written to: run it read-only, with a tmpfs on /tmp
VOLUME ["/var/lib/lowwater"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python3", "/opt/lowwater/bin/healthy.py"]
ENTRYPOINT ["lowwater-merger"]
