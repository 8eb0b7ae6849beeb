# SPDX-License-Identifier: Apache-2.0
# The orchestrator from a clone alone, as `docker compose up` builds it: the first stage builds the kernel, the agent and a wheel.
# `make compose` needs no such build: tools/images takes the toolchain of this machine (images/orchestrator). The builder keeps
# the cache of qbed, so that a change of the clone rebuilds only what it affects.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git python3 python3-venv
COPY . /qbed
WORKDIR /qbed
ENV QBED_CACHE=/cache PIP_CERT=/etc/ssl/certs/ca-certificates.crt
# tools/wheel takes the files that git tracks. One step, since the cache may be pruned between two.
RUN --mount=type=cache,id=qbed,target=/cache \
    tools/setup \
 && git init --quiet && git add --all && tools/wheel \
 && .venv/bin/python images/python/runtime_lock.py orchestrator/requirements.lock >/runtime.lock \
 && python3 -m venv --without-pip /opt/qbed \
 && .venv/bin/pip --python /opt/qbed/bin/python install --quiet --no-cache-dir --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: --requirement /runtime.lock \
 && images/python/reduce /opt/qbed/lib/python3*/site-packages \
 && rm -rf /opt/qbed/share /opt/qbed/etc \
 && .venv/bin/pip --python /opt/qbed/bin/python install --quiet --no-cache-dir --disable-pip-version-check --no-deps dist/qbed-*.whl

FROM ${BASE}
LABEL org.qbed.role="orchestrator" \
      org.opencontainers.image.title="qbed: orchestrator" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later"
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ethtool iperf3 iproute2 iputils-ping python3 tcpdump \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 qbed \
 && install --directory --owner=1000 /work /work/runs /var/lib/qbed /run/qbed
COPY --from=build /opt/qbed /opt/qbed
ENV PATH=/opt/qbed/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_RUNTIME_DIR=/run/qbed \
    XDG_DATA_HOME=/var/lib/qbed \
    QBED_CACHE=/var/lib/qbed/cache
WORKDIR /work
USER 1000
STOPSIGNAL SIGTERM
ENTRYPOINT ["qbed"]
CMD ["--help"]
