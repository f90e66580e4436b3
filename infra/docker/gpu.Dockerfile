# GPU workers: vLLM and the transformers engine on CUDA 13. Build from the repository's root:
#   docker build -f infra/docker/gpu.Dockerfile -t REGISTRY/sgpu-gpu:0.1.0 .
# The CUDA libraries come as wheels of the lock; the base image brings the loader and the compiler's headers.
FROM nvidia/cuda:13.0.2-base-ubuntu24.04 AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3.12 python3.12-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3.12 -m venv /opt/sgpu
ENV PATH=/opt/sgpu/bin:$PATH
COPY infra/locks/gpu.txt infra/docker/cluster.txt /locks/
RUN pip install --no-deps -r /locks/gpu.txt -r /locks/cluster.txt
COPY pyproject.toml README.md LICENSE /src/
COPY sgpu /src/sgpu
COPY pipelines /src/pipelines
RUN pip install --no-deps --no-build-isolation /src

FROM nvidia/cuda:13.0.2-base-ubuntu24.04
# gcc and Python's headers: Triton compiles its launchers when a kernel is first used.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev procps python3.12 python3.12-dev rsync wget \
 && rm -rf /var/lib/apt/lists/* \
 && (userdel --remove ubuntu || true) \
 && useradd --uid 1000 --create-home --shell /bin/bash sgpu
COPY --from=build /opt/sgpu /opt/sgpu
ENV PATH=/opt/sgpu/bin:$PATH \
    HF_HOME=/cache/huggingface \
    RAY_AUTH_MODE=token \
    RAY_USAGE_STATS_ENABLED=0 \
    DAGSTER_DISABLE_TELEMETRY=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false \
    VLLM_NO_USAGE_STATS=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /home/sgpu
CMD ["sgpu", "doctor"]
