# Head node, CPU workers, MLflow, Dagster and the nightly job. Build from the repository's root:
#   docker build -f infra/docker/cpu.Dockerfile -t REGISTRY/sgpu-cpu:0.1.0 .
# The base is that of gpu.Dockerfile: Ray lets no worker in whose Python differs from the head's by a patch.
FROM python:3.12.12-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/sgpu
ENV PATH=/opt/sgpu/bin:$PATH
COPY infra/locks/cpu.txt infra/docker/cluster.txt /locks/
RUN pip install --no-deps --index-url "$TORCH_INDEX" torch==2.13.0 \
 && pip install --no-deps -r /locks/cpu.txt -r /locks/cluster.txt
COPY pyproject.toml README.md LICENSE /src/
COPY sgpu /src/sgpu
COPY pipelines /src/pipelines
RUN pip install --no-deps --no-build-isolation /src

FROM python:3.12.12-slim-bookworm
# libgomp: torch. wget: the probes of KubeRay. procps: ps, which Ray's launcher calls. rsync: file mounts.
# openssh-client: from the head Ray's autoscaler sets up new nodes with it; Debian's rsync only suggests it.
# profile.d: Ray's launcher calls `bash --login`, for which Debian's /etc/profile sets PATH anew.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 openssh-client procps rsync wget \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /bin/bash sgpu \
 && install -d -o 1000 -g 1000 /cache \
 && echo 'export PATH=/opt/sgpu/bin:$PATH' > /etc/profile.d/sgpu.sh
COPY --from=build /opt/sgpu /opt/sgpu
ENV PATH=/opt/sgpu/bin:$PATH \
    HF_HOME=/cache/huggingface \
    SGPU_CACHE=/cache/sgpu \
    RAY_AUTH_MODE=token \
    RAY_USAGE_STATS_ENABLED=0 \
    DAGSTER_DISABLE_TELEMETRY=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false \
    PYTHONDONTWRITEBYTECODE=1
# 1000 is also the user of most cloud images, so that mounted files keep a readable owner.
USER 1000:1000
WORKDIR /home/sgpu
CMD ["sgpu", "doctor"]
