# Images of Blockyard: one target per process of a node, all on the same base and the same user.
#
#   docker build --target block-manager -t blockyard/block-manager:0.1.0 .
#
# Targets: block-manager, offload-worker, remote-tier, demo-engine. `docker compose build` makes all four.
#
# Packages come with the hashes of deploy/locks, and nothing else is installed. A mirror of the package index is named
# when building and stays out of every layer:
#
#   docker build --secret id=pip_conf,src=$HOME/.config/pip/pip.conf --target block-manager .
#
# and a certificate authority of your own by `--secret id=ca_certificates,src=/etc/ssl/certs/ca-certificates.crt`.

# For the same Python and Debian in every build, name the digest too: --build-arg PYTHON_IMAGE=...@sha256:...
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm

# --- build: packages first, so that a change of the sources installs none of them again ---------------------------
FROM ${PYTHON_IMAGE} AS build
# The pip of this Python trusts a list of its own, unless it is told where the machine keeps the authorities it trusts.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt
WORKDIR /src
COPY deploy/locks/ locks/
# pip lives in an environment of its own: what is copied into the images has none.
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv /opt/build \
 && /opt/build/bin/pip install --no-deps --require-hashes -r locks/build.lock

FROM build AS wheel
COPY pyproject.toml ./
COPY shared/ shared/
COPY services/ services/
RUN /opt/build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /dist .

FROM build AS engine-packages
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv --without-pip /opt/blockyard \
 && /opt/build/bin/pip --python /opt/blockyard/bin/python install --no-deps --require-hashes -r locks/engine.lock

FROM engine-packages AS service-packages
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/build/bin/pip --python /opt/blockyard/bin/python install --no-deps --require-hashes -r locks/services.lock

# NIXL is large and moves bytes between memory and disk: nobody else needs it. Its kernels for expert parallelism, a
# third of the image, are for engines.
FROM service-packages AS offload-packages
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/build/bin/pip --python /opt/blockyard/bin/python install --no-deps --require-hashes \
      -r locks/offload-worker.lock \
 && rm -rf /opt/blockyard/lib/python3.*/site-packages/nixl_ep_cu12

# Below a root of its own, because it becomes the last layer of each image: an update of the sources moves no packages.
# Of its commands an image gets those that have their packages there.
FROM engine-packages AS own
COPY --from=wheel /dist dist
RUN /opt/build/bin/pip --python /opt/blockyard/bin/python install --no-deps --no-index --no-warn-script-location \
      --root /own dist/*.whl

# --- runtime: what all images share --------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS runtime
ARG VERSION=0.1.0
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Blockyard"
# One user for all processes of a node: sockets and state are for their owner only. No pip at run time. The root file
# system may be read-only, and this Python comes without byte code: compiled here, once, a health check costs a quarter.
RUN groupadd --gid 10001 blockyard \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin blockyard \
 && install -d -o blockyard -g blockyard -m 0700 /var/lib/blockyard /var/lib/blockyard-g3 \
 && rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/site-packages/* \
 && python3 -m compileall -q --invalidation-mode unchecked-hash \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
ENV PATH=/opt/blockyard/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/blockyard
STOPSIGNAL SIGTERM
USER 10001:10001

FROM runtime AS service
# Ports are fixed where each service has an address of its own. State and slab are volumes: the first holds sockets and
# locks of one node and is shared by its services and engines, the second belongs on local NVMe.
ENV BLOCKYARD_HTTP__HOST=0.0.0.0 \
    BLOCKYARD_HTTP__BLOCK_MANAGER_PORT=8801 \
    BLOCKYARD_HTTP__OFFLOAD_WORKER_PORT=8802 \
    BLOCKYARD_HTTP__REMOTE_TIER_PORT=8803 \
    BLOCKYARD_NODE__FOLDER=/var/lib/blockyard \
    BLOCKYARD_G3__FOLDER=/var/lib/blockyard-g3

FROM service AS lean-service
COPY --from=service-packages /opt/blockyard /opt/blockyard
COPY --from=own /own/opt/blockyard/lib /opt/blockyard/lib
COPY --from=own /own/opt/blockyard/bin/blockyard-health /opt/blockyard/bin/

# --- images --------------------------------------------------------------------------------------------------------
# Health checks: each starts a Python for a moment, and a start that preallocates the slab or fills a large arena with
# pages may take minutes. The check of a container that starts well ends that time at once.
FROM lean-service AS block-manager
LABEL org.opencontainers.image.title="blockyard block-manager" \
      org.opencontainers.image.description="Metadata, policy, jobs, events and REST API of a node"
COPY --from=own /own/opt/blockyard/bin/blockyard-block-manager /opt/blockyard/bin/
EXPOSE 8801
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
  CMD ["blockyard-health", "ready", "--service", "block-manager"]
ENTRYPOINT ["blockyard-block-manager"]

FROM service AS offload-worker
LABEL org.opencontainers.image.title="blockyard offload-worker" \
      org.opencontainers.image.description="Owner of the bytes in host memory (G2) and on local disk (G3) of a node"
COPY --from=offload-packages /opt/blockyard /opt/blockyard
COPY --from=own /own/opt/blockyard/lib /opt/blockyard/lib
COPY --from=own /own/opt/blockyard/bin/blockyard-offload-worker /own/opt/blockyard/bin/blockyard-health \
      /opt/blockyard/bin/
EXPOSE 8802
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
  CMD ["blockyard-health", "ready", "--service", "offload-worker"]
ENTRYPOINT ["blockyard-offload-worker"]

FROM lean-service AS remote-tier
LABEL org.opencontainers.image.title="blockyard remote-tier" \
      org.opencontainers.image.description="Object store (G4) and prefix index of a node"
COPY --from=own /own/opt/blockyard/bin/blockyard-remote-tier /opt/blockyard/bin/
EXPOSE 8803
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
  CMD ["blockyard-health", "ready", "--service", "remote-tier"]
ENTRYPOINT ["blockyard-remote-tier"]

FROM runtime AS demo-engine
LABEL org.opencontainers.image.title="blockyard demo engine" \
      org.opencontainers.image.description="Replays a trace against a node and checks every byte it loads; needs no GPU"
COPY --from=engine-packages /opt/blockyard /opt/blockyard
COPY --from=own /own/opt/blockyard/lib /opt/blockyard/lib
EXPOSE 8900
# With --listen its port opens when it is connected to its node.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
  CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8900), 2).close()"]
ENTRYPOINT ["python", "-m", "blockyard.connectors.mock"]
