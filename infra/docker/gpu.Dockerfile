# GPU workers: vLLM and the transformers engine on CUDA 13. Build from the repository's root:
#   docker build -f infra/docker/gpu.Dockerfile -t REGISTRY/sgpu-gpu:0.1.0 .
# The CUDA libraries come as wheels of the lock and the driver from NVIDIA's container runtime, so the base is
# that of cpu.Dockerfile: Ray lets no worker in whose Python differs from the head's by a patch.
FROM python:3.12.12-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/sgpu
ENV PATH=/opt/sgpu/bin:$PATH
COPY infra/locks/gpu.txt infra/docker/cluster.txt /locks/
RUN pip install --no-deps -r /locks/gpu.txt && pip install --no-deps -r /locks/cluster.txt
COPY pyproject.toml README.md LICENSE /src/
COPY sgpu /src/sgpu
COPY pipelines /src/pipelines
RUN pip install --no-deps --no-build-isolation /src

FROM python:3.12.12-slim-bookworm
# gcc: Triton compiles its launchers when a kernel is first used; Python's headers are in the base. g++: what
# Inductor and PyTorch's extensions compile.
# libgomp, procps, rsync, wget, profile.d: as in cpu.Dockerfile.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ gcc libc6-dev libgomp1 procps rsync wget \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /bin/bash sgpu \
 && install -d -o 1000 -g 1000 /cache \
 && echo 'export PATH=/opt/sgpu/bin:$PATH' > /etc/profile.d/sgpu.sh
COPY --from=build /opt/sgpu /opt/sgpu
# What NVIDIA's runtime brings in of the driver; the images of CUDA say the same.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PATH=/opt/sgpu/bin:$PATH \
    HF_HOME=/cache/huggingface \
    SGPU_CACHE=/cache/sgpu \
    VLLM_CACHE_ROOT=/cache/vllm \
    TRITON_CACHE_DIR=/cache/triton \
    RAY_AUTH_MODE=token \
    RAY_USAGE_STATS_ENABLED=0 \
    DAGSTER_DISABLE_TELEMETRY=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false \
    VLLM_NO_USAGE_STATS=1 \
    VLLM_USE_FLASHINFER_SAMPLER=0 \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /home/sgpu
CMD ["sgpu", "doctor"]
