# Three images: the API, with the Python packages that requirements.lock pins; (--target worker) what measures, on an
# image that has torch; (--target ray) the head of a Ray cluster with its worker. TORCH_IMAGE names the image that
# training runs in; what it has is what is measured.
ARG TORCH_IMAGE=pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime

FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY service service
RUN ["pip", "wheel", "--no-cache-dir", "--no-deps", "--wheel-dir", "/wheels", "."]

FROM ${TORCH_IMAGE} AS worker
ENV PYTHONUNBUFFERED=1 HOME=/tmp TRAINCOST_URL=http://api:8000
USER root
RUN useradd --system --uid 10001 --no-create-home traincost
RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "httpx>=0.28", "annotated-types>=0.8"]
COPY --from=build /wheels /wheels
RUN python3 -m pip install --no-cache-dir --no-deps /wheels/*.whl
USER 10001
WORKDIR /tmp
CMD ["traincost", "worker"]

FROM python:3.11-slim AS packages
ENV PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --no-create-home traincost
COPY requirements.lock /
RUN ["pip", "install", "--no-cache-dir", "--require-hashes", "--requirement", "/requirements.lock"]
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl

FROM packages AS ray
ENV HOME=/tmp RAY_USAGE_STATS_ENABLED=0 TRAINCOST_URL=http://api:8000
RUN ["pip", "install", "--no-cache-dir", "ray>=2.60"]
USER 10001
WORKDIR /tmp
EXPOSE 6379
CMD ["sh", "-c", "ray start --head --port 6379 --include-dashboard false && exec traincost worker --runner ray --ray-address 127.0.0.1:6379"]

FROM packages AS api
ENV TRAINCOST_DATABASE_URL=sqlite:////data/traincost.db
RUN install --directory --owner traincost /data
USER 10001
VOLUME /data
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["traincost", "serve", "--host", "0.0.0.0", "--port", "8000"]
